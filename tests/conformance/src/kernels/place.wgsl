// Stands before the text of every kernel here: where an invocation is, workgroups counted as on the host, x first.
struct Here {
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
}

fn workgroup_of(here: Here) -> u32 {
    return (here.group.z * here.grid.y + here.group.y) * here.grid.x + here.group.x;
}

fn element_of(here: Here) -> u32 {
    return workgroup_of(here) * 64u + here.lane;
}

