//! Barriers: where an operation depends on one before it, and nowhere else.

use crate::bench::{Bench, bytes_of, each, launch, outline, step};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use trunnion_backend_vulkan::ash::vk;
use trunnion_backend_vulkan::{VulkanImport, VulkanOptions};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_vulkan_shim::Plan;

fn plainly(test: impl Fn(&Bench)) {
    each(Plan::new, &VulkanOptions::default().queues(1), test);
}

#[test]
fn a_launch_that_reads_what_one_wrote_lies_behind_a_barrier() {
    plainly(|bench| {
        let (step, [a, b, c]) = (step(bench), bench.buffers());
        let batch = bench.batch(|client| {
            launch(client, &step, &a, &b);
            launch(client, &step, &b, &c);
        });
        assert_eq!(outline(&batch), "launch | launch");
        assert_eq!(bench.read(&c)[0], 2);
    });
}

#[test]
fn a_launch_that_writes_what_one_read_or_wrote_lies_behind_a_barrier() {
    plainly(|bench| {
        let (step, [a, b, c]) = (step(bench), bench.buffers());
        let write_after_read = bench.batch(|client| {
            launch(client, &step, &a, &b);
            launch(client, &step, &c, &a);
        });
        assert_eq!(outline(&write_after_read), "launch | launch");
        let write_after_write = bench.batch(|client| {
            launch(client, &step, &a, &b);
            launch(client, &step, &c, &b);
        });
        assert_eq!(outline(&write_after_write), "launch | launch");
    });
}

#[test]
fn launches_that_only_read_the_same_or_have_nothing_in_common_lie_side_by_side() {
    plainly(|bench| {
        let (step, [a, b, c, d]) = (step(bench), bench.buffers());
        let read_read = bench.batch(|client| {
            launch(client, &step, &a, &b);
            launch(client, &step, &a, &c);
        });
        assert_eq!(outline(&read_read), "launch launch");
        let apart = bench.batch(|client| {
            launch(client, &step, &a, &b);
            launch(client, &step, &c, &d);
        });
        assert_eq!(outline(&apart), "launch launch");
    });
}

#[test]
fn ranges_of_one_buffer_depend_on_each_other_only_where_they_overlap() {
    plainly(|bench| {
        let (step, whole, [a]) = (step(bench), bench.buffer(&[0; 512]), bench.buffers());
        let range = |start: u64, end: u64| whole.slice(start..end).unwrap();
        let apart = bench.batch(|client| {
            launch(client, &step, &a, &range(0, 256));
            launch(client, &step, &a, &range(256, 512));
            launch(client, &step, &range(512, 768), &range(768, 1024));
        });
        assert_eq!(outline(&apart), "launch launch launch");
        let overlapping = bench.batch(|client| {
            launch(client, &step, &a, &range(0, 512));
            launch(client, &step, &a, &range(256, 768));
        });
        assert_eq!(outline(&overlapping), "launch | launch");
        let read_of_a_part = bench.batch(|client| {
            launch(client, &step, &a, &range(0, 512));
            launch(client, &step, &range(256, 512), &range(1024, 1280));
        });
        assert_eq!(outline(&read_of_a_part), "launch | launch");
    });
}

#[test]
fn one_barrier_serves_everything_behind_it() {
    plainly(|bench| {
        let (step, [a, b, c, d, e, f]) = (step(bench), bench.buffers());
        let batch = bench.batch(|client| {
            launch(client, &step, &a, &b);
            launch(client, &step, &a, &c);
            launch(client, &step, &b, &d);
            launch(client, &step, &c, &e);
            launch(client, &step, &d, &f);
        });
        assert_eq!(outline(&batch), "launch launch | launch launch | launch");
    });
}

#[test]
fn copies_and_fills_depend_as_launches_do() {
    plainly(|bench| {
        let (step, [a, b, c, d]) = (step(bench), bench.buffers());
        let batch = bench.batch(|client| {
            client.copy(&a, &b).unwrap();
            launch(client, &step, &b, &c);
            client.fill(&d, &[7]).unwrap();
            client.copy(&d, &b).unwrap();
        });
        assert_eq!(outline(&batch), "copy | launch fill | copy");
        assert_eq!((bench.read(&b)[0], bench.read(&c)[63]), (0x0707_0707, 1));
        let copies = bench.batch(|client| {
            client.copy(&a, &b).unwrap();
            client.copy(&a, &c).unwrap();
            client.copy(&b, &d).unwrap();
        });
        assert_eq!(outline(&copies), "copy copy | copy");
        let one_buffer = bench.batch(|client| {
            client.copy(&a.slice(0..64).unwrap(), &a.slice(64..128).unwrap()).unwrap();
            client.copy(&a.slice(0..64).unwrap(), &a.slice(128..192).unwrap()).unwrap();
            client.fill(&a.slice(0..64).unwrap(), &[1]).unwrap();
        });
        assert_eq!(outline(&one_buffer), "copy copy | fill");
    });
}

#[test]
fn a_read_of_the_host_lies_behind_what_it_reads_and_before_what_overwrites_it() {
    plainly(|bench| {
        let (step, [a, b]) = (step(bench), bench.buffers());
        let mut reading = None;
        // A read is submitted at once.
        let batches = bench.gathered(|client| {
            launch(client, &step, &a, &b);
            reading = Some(client.read_async(&[&b]).unwrap());
            client.fill(&b, &[0]).unwrap();
        });
        assert_eq!(batches.iter().map(outline).collect::<Vec<_>>(), ["launch | copy", "| fill"]);
        let to_the_host = batches[0].barriers().last().unwrap();
        assert!(to_the_host.to.contains(vk::PipelineStageFlags::HOST), "{}", batches[0]);
        assert!(to_the_host.visible.contains(vk::AccessFlags::HOST_READ), "{}", batches[0]);
        assert_eq!(reading.unwrap().wait().unwrap()[0].as_slice().unwrap()[..4], [1, 0, 0, 0]);
    });
}

#[test]
fn a_write_of_bytes_that_are_in_use_lies_behind_a_barrier() {
    plainly(|bench| {
        let (step, [a, b]) = (step(bench), bench.buffers());
        let batch = bench.batch(|client| {
            launch(client, &step, &a, &b);
            client.write_slice(&a, &bytes_of(&[5; 64])).unwrap();
            launch(client, &step, &a, &b);
        });
        assert_eq!(outline(&batch), "launch | copy | launch");
        assert_eq!(bench.read(&b)[0], 6);
    });
}

#[test]
fn counts_in_memory_are_behind_what_writes_them_and_before_what_overwrites_them() {
    plainly(|bench| {
        let (step, [a, b, c]) = (step(bench), bench.buffers());
        let (counts, ones) = (bench.buffer(&[1, 1, 1]), bench.buffer(&[1, 1, 1]));
        let counted = |client: &Client, to| {
            client.launch(&step, Grid::Dynamic(counts.clone()), [&a, to]).unwrap();
        };
        counted(&bench.client, &b);
        bench.settle();
        // The counts are copied, checked and dispatched by: each of these lies behind the one before.
        let known = bench.batch(|client| counted(client, &b));
        assert_eq!(outline(&known), "copy | launch | counted");
        let written = bench.batch(|client| {
            client.copy(&ones, &counts).unwrap();
            counted(client, &b);
            client.fill(&counts, &[0]).unwrap();
        });
        assert_eq!(outline(&written), "copy | copy | launch | counted | fill");
        assert_eq!(bench.read(&b)[0], 1);
        // Counts of zero run nothing, and what follows is not held up.
        let nothing = bench.batch(|client| {
            counted(client, &c);
            launch(client, &step, &a, &b);
        });
        assert_eq!(outline(&nothing), "copy | launch | counted launch");
        assert_eq!(bench.read(&c)[0], 0);
    });
}

#[test]
fn what_lies_in_two_batches_depends_as_in_one() {
    plainly(|bench| {
        let (step, [a, b, c, d]) = (step(bench), bench.buffers());
        let dependent = bench.gathered(|client| {
            launch(client, &step, &a, &b);
            client.flush().unwrap();
            launch(client, &step, &b, &c);
        });
        assert_eq!(dependent.iter().map(outline).collect::<Vec<_>>(), ["launch", "| launch"]);
        let independent = bench.gathered(|client| {
            launch(client, &step, &a, &b);
            client.flush().unwrap();
            launch(client, &step, &c, &d);
        });
        assert_eq!(independent.iter().map(outline).collect::<Vec<_>>(), ["launch", "launch"]);
        assert!(independent.iter().all(|batch| batch.waits.is_empty()));
    });
}

#[test]
fn what_another_stream_did_is_behind_a_barrier_on_the_same_queue() {
    plainly(|bench| {
        let (step, [a, b, c, d]) = (step(bench), bench.buffers());
        let other = bench.other_stream();
        launch(&other, &step, &a, &d);
        other.sync().unwrap().wait().unwrap();
        let dependent = bench.gathered(|client| {
            launch(client, &step, &a, &b);
            launch(&other, &step, &b, &c);
            other.flush().unwrap();
        });
        assert_eq!(dependent.iter().map(outline).collect::<Vec<_>>(), ["launch", "| launch"]);
        other.sync().unwrap().wait().unwrap();
        let independent = bench.gathered(|client| {
            launch(client, &step, &a, &b);
            launch(&other, &step, &a, &c);
            other.flush().unwrap();
        });
        assert!(independent.iter().all(|batch| outline(batch) == "launch"), "{independent:?}");
    });
}

#[test]
fn a_full_barrier_is_between_everything_that_uses_memory() {
    plainly(|bench| {
        let (step, [a, b, c]) = (step(bench), bench.buffers());
        let batch = bench.batch(|client| {
            launch(client, &step, &a, &b);
            launch(client, &step, &b, &c);
        });
        let full = batch.barriers().find(|barrier| barrier.from.contains(vk::PipelineStageFlags::COMPUTE_SHADER));
        let full = full.unwrap();
        let stages = vk::PipelineStageFlags::COMPUTE_SHADER
            | vk::PipelineStageFlags::TRANSFER
            | vk::PipelineStageFlags::DRAW_INDIRECT;
        assert!(full.from.contains(stages) && full.to.contains(stages), "{full}");
        assert!(full.available.contains(vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE), "{full}");
        let uses = vk::AccessFlags::SHADER_READ
            | vk::AccessFlags::SHADER_WRITE
            | vk::AccessFlags::TRANSFER_READ
            | vk::AccessFlags::TRANSFER_WRITE
            | vk::AccessFlags::INDIRECT_COMMAND_READ;
        assert!(full.visible.contains(uses), "{full}");
        assert_eq!(full.of_buffers, 0, "all memory, so that no buffer is forgotten");
    });
}

/// Pages of the host, freed when they are dropped.
struct Pages(NonNull<u8>);

impl Pages {
    const LAYOUT: Layout = match Layout::from_size_align(8192, 4096) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    };

    fn new() -> Self {
        // SAFETY: the layout has bytes.
        Self(NonNull::new(unsafe { alloc_zeroed(Self::LAYOUT) }).unwrap())
    }
}

// SAFETY: nobody uses the bytes but the device.
unsafe impl Send for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0.as_ptr(), Self::LAYOUT) };
    }
}

#[test]
fn what_is_written_to_memory_of_the_hosts_is_there_for_the_host_whatever_pages_are() {
    let reaches_the_host = |bench: &Bench, to: &Handle| {
        let batch = bench.batch(|client| {
            client.fill(to, &[7]).unwrap();
        });
        batch.barriers().any(|barrier| barrier.to.contains(vk::PipelineStageFlags::HOST))
    };
    let staged = VulkanOptions::default().queues(1).staging(true);
    each(Plan::new, &staged.clone().export_memory(true), |bench| {
        assert!(reaches_the_host(bench, &bench.buffer(&[0; 64])), "whom it is handed to may look at it");
    });
    each(Plan::new, &staged, |bench| {
        let own = bench.buffer(&[0; 64]);
        assert!(!reaches_the_host(bench, &own), "nothing is the host's to look at");
        let pages = Pages::new();
        // SAFETY: whole pages, which nobody else uses.
        let import = unsafe { VulkanImport::from_host(pages.0, 8192, pages) };
        let Ok(theirs) = bench.client.import(import) else { return println!("no host memory is imported here") };
        assert!(reaches_the_host(bench, &theirs));
    });
}
