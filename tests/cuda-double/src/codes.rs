//! The driver's result codes that the double gives, as the numbers of `CUresult`.

/// What a driver's function returns. Equivalent to: `CUresult`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct Code(pub(crate) u32);

/// What a call gives: nothing, or the code of what went wrong.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($name:ident = $number:literal, $spelled:literal, $meaning:literal;)*) => {
        impl Code {
            $(
                #[allow(dead_code, reason = "a test may ask for a code that the double never gives by itself")]
                pub(crate) const $name: Self = Self($number);
            )*

            /// The name and the meaning, each with a NUL at its end. Equivalent to: `cuGetErrorName`, `cuGetErrorString`.
            pub(crate) fn words(self) -> Option<(&'static str, &'static str)> {
                match self.0 {
                    $($number => Some((concat!("CUDA_", $spelled, "\0"), concat!($meaning, "\0"))),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    SUCCESS = 0, "SUCCESS", "no error";
    INVALID_VALUE = 1, "ERROR_INVALID_VALUE", "invalid argument";
    OUT_OF_MEMORY = 2, "ERROR_OUT_OF_MEMORY", "out of memory";
    NOT_INITIALIZED = 3, "ERROR_NOT_INITIALIZED", "initialization error";
    DEINITIALIZED = 4, "ERROR_DEINITIALIZED", "driver shutting down";
    NO_DEVICE = 100, "ERROR_NO_DEVICE", "no CUDA-capable device is detected";
    INVALID_DEVICE = 101, "ERROR_INVALID_DEVICE", "invalid device ordinal";
    INVALID_IMAGE = 200, "ERROR_INVALID_IMAGE", "device kernel image is invalid";
    INVALID_CONTEXT = 201, "ERROR_INVALID_CONTEXT", "invalid device context";
    NO_BINARY_FOR_GPU = 209, "ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device";
    ECC_UNCORRECTABLE = 214, "ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered";
    PEER_ACCESS_UNSUPPORTED = 217, "ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices";
    INVALID_PTX = 218, "ERROR_INVALID_PTX", "a PTX JIT compilation failed";
    NVLINK_UNCORRECTABLE = 220, "ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error detected during the execution";
    UNSUPPORTED_PTX_VERSION = 222, "ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain.";
    CONTAINED = 226, "ERROR_CONTAINED", "an exception that the device contained";
    INVALID_HANDLE = 400, "ERROR_INVALID_HANDLE", "invalid resource handle";
    ILLEGAL_STATE = 401, "ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state";
    NOT_FOUND = 500, "ERROR_NOT_FOUND", "named symbol not found";
    NOT_READY = 600, "ERROR_NOT_READY", "device not ready";
    ILLEGAL_ADDRESS = 700, "ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, "ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch";
    LAUNCH_TIMEOUT = 702, "ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated";
    PEER_ACCESS_ALREADY_ENABLED = 704, "ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled";
    ASSERT = 710, "ERROR_ASSERT", "device-side assert triggered";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, "ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region";
    ILLEGAL_INSTRUCTION = 715, "ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered";
    MISALIGNED_ADDRESS = 716, "ERROR_MISALIGNED_ADDRESS", "misaligned address";
    INVALID_ADDRESS_SPACE = 717, "ERROR_INVALID_ADDRESS_SPACE", "operation not supported on global/shared address space";
    INVALID_PC = 718, "ERROR_INVALID_PC", "invalid program counter";
    LAUNCH_FAILED = 719, "ERROR_LAUNCH_FAILED", "unspecified launch failure";
    COOPERATIVE_LAUNCH_TOO_LARGE = 720, "ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch";
    TENSOR_MEMORY_LEAK = 721, "ERROR_TENSOR_MEMORY_LEAK", "tensor memory was not given back";
    NOT_PERMITTED = 800, "ERROR_NOT_PERMITTED", "operation not permitted";
    NOT_SUPPORTED = 801, "ERROR_NOT_SUPPORTED", "operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, "ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902, "ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903, "ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = 904, "ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = 905, "ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream";
    STREAM_CAPTURE_IMPLICIT = 906, "ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, "ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, "ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread";
    TIMEOUT = 909, "ERROR_TIMEOUT", "wait operation timed out";
    GRAPH_EXEC_UPDATE_FAILURE = 910, "ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph update was not performed because it included changes which violated constraints";
    UNKNOWN = 999, "ERROR_UNKNOWN", "unknown error";
}

impl Code {
    /// Whether a code, once given by work of a context, is given by every call after it.
    pub(crate) fn is_sticky(self) -> bool {
        // Of this range, what is asked of peers and of host memory is refused and done with. The others tell of hardware that failed.
        matches!(self.0, 700..=719) && !matches!(self.0, 701 | 704 | 705 | 708 | 711..=713)
            || matches!(self.0, 214 | 220 | 226 | 721)
    }
}

/// Work that failed: the code its context has from then on, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    pub(crate) why: String,
}

impl Fault {
    pub(crate) fn new(code: Code, why: impl Into<String>) -> Self {
        Self { code, why: why.into() }
    }
}
