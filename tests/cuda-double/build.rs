//! Gives the shared library the name that CUDA programs look for, so that once loaded it is what they find.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}
