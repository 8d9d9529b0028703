//! Lists the devices there are, best first, and the backends that have none here: `cargo run -p trunnion --example devices`.

fn main() {
    print!("{}", trunnion::discover());
}
