//! The program that asks for all that a driver does, on CUDA.

use trunnion_driver_rig::program::{self, Came};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel};

/// `y[i] = a * x[i] + b`, as the compiler would write it for
/// `scale(const unsigned *x, unsigned *y, struct { unsigned a, b; } p, unsigned long long bytes_x, unsigned long long bytes_y)`.
const SCALE: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry scale(
    .param .u64 scale_param_0,
    .param .u64 scale_param_1,
    .param .align 4 .b8 scale_param_2[8],
    .param .u64 scale_param_3,
    .param .u64 scale_param_4
)
{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<11>;
    ld.param.u64 %rd1, [scale_param_0];
    ld.param.u64 %rd2, [scale_param_1];
    ld.param.u32 %r1, [scale_param_2];
    ld.param.u32 %r2, [scale_param_2+4];
    ld.param.u64 %rd3, [scale_param_3];
    ld.param.u64 %rd4, [scale_param_4];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    mul.wide.u32 %rd5, %r6, 4;
    setp.ge.u64 %p1, %rd5, %rd3;
    @%p1 bra DONE;
    setp.ge.u64 %p2, %rd5, %rd4;
    @%p2 bra DONE;
    cvta.to.global.u64 %rd6, %rd1;
    add.s64 %rd7, %rd6, %rd5;
    ld.global.u32 %r7, [%rd7];
    mad.lo.s32 %r8, %r7, %r1, %r2;
    cvta.to.global.u64 %rd8, %rd2;
    add.s64 %rd9, %rd8, %rd5;
    st.global.u32 [%rd9], %r8;
DONE:
    ret;
}
";

/// Runs the program, whatever fails. Bytes of a fill that the double looks at one by one are few.
pub fn run(client: &Client) -> Came {
    // SAFETY: it touches what lies within both buffers.
    let source = unsafe { Source::ptx(SCALE) };
    let interface = Interface::new().read().partition(256).parameters(8);
    program::run(client, SourceKernel::new("scale", interface).workgroup_size([64, 1, 1]).source(source), 16 << 10)
}
