//! Tensors handed out and taken in, through nothing but the C interface.

#![allow(unsafe_code)]
#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use trunnion_backend_host::{HostBackend, HostOptions};
use trunnion_dlpack::dlpark::DlpackFlags;
use trunnion_dlpack::dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLManagedTensor, DLManagedTensorVersioned};
use trunnion_dlpack::dlpark::metadata::Dynamic;
use trunnion_dlpack::{DlpackError, Managed, ManagedTensorBase, copy_from_dlpack, from_dlpack, to_dlpack};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::{Client, TensorView};
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::id::{BackendName, DeviceId};
use trunnion_runtime_core::layout::TensorDescriptor;

fn start_as(backend: BackendName) -> Client {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let opened = HostBackend::new(HostOptions::default()).open(0, &OpenSettings::default()).unwrap();
    let device = DeviceId { backend, index: NEXT.fetch_add(1, Ordering::Relaxed) };
    Client::try_init(device, opened).unwrap()
}

fn start() -> Client {
    start_as(HostBackend::default().name())
}

/// Elements of another library, and what tells that its deleter was called.
struct Others {
    words: Vec<u64>,
    deleted: Arc<AtomicU32>,
}

impl Drop for Others {
    fn drop(&mut self) {
        self.deleted.fetch_add(1, Ordering::Relaxed);
    }
}

/// A tensor of another library: words that are counted up.
struct Made<M: ManagedTensorBase> {
    tensor: Managed<M>,
    words: *const u64,
    deleted: Arc<AtomicU32>,
}

fn make<M: ManagedTensorBase>(
    shape: &[i64],
    strides: &[i64],
    data_type: DLDataType,
    device: DLDevice,
    flags: DlpackFlags,
    byte_offset: u64,
) -> Made<M> {
    let deleted = Arc::new(AtomicU32::new(0));
    let mut others = Box::new(Others { words: (0..64).collect(), deleted: deleted.clone() });
    let data = others.words.as_mut_ptr();
    let mut initialized = Dynamic::new(shape.to_vec(), strides.to_vec()).initialize_as::<M>(others).unwrap();
    initialized.set_data(data.cast()).set_dtype(data_type).set_device(device).set_byte_offset(byte_offset);
    initialized.set_flags(flags).unwrap();
    // SAFETY: the tensors of these tests are looked at only as far as they are there.
    Made { tensor: unsafe { initialized.finish() }, words: data, deleted }
}

fn plain<M: ManagedTensorBase>(shape: &[i64], strides: &[i64]) -> Made<M> {
    make(shape, strides, DLDataType::U64, DLDevice::CPU, DlpackFlags::empty(), 0)
}

#[test]
fn a_tensor_of_another_library_is_used_where_it_is_and_its_deleter_called_once() {
    fn both<M: ManagedTensorBase + 'static>() {
        let client = start();
        let made = plain::<M>(&[4, 4], &[4, 1]);
        // SAFETY: the words are there until the deleter is called, and only this thread uses them.
        let (descriptor, layout) = unsafe { from_dlpack(&client, made.tensor) }.unwrap();
        assert_eq!((descriptor.shape, descriptor.elem, &*layout.strides), (vec![4, 4], ElemType::U64, &[4, 1][..]));
        client.fill(&layout.memory.slice(8..16).unwrap(), &[0xff]).unwrap();
        client.sync().unwrap().wait().unwrap();
        // SAFETY: the words are there, and the device is done with them.
        assert_eq!(unsafe { (made.words.read(), made.words.add(1).read()) }, (0, u64::MAX));
        assert_eq!(made.deleted.load(Ordering::Relaxed), 0);
        drop(layout);
        client.shutdown(Duration::from_secs(10));
        assert_eq!(made.deleted.load(Ordering::Relaxed), 1);
    }
    both::<DLManagedTensor>();
    both::<DLManagedTensorVersioned>();
}

#[test]
fn rows_with_gaps_keep_their_strides_and_an_offset_is_where_the_elements_begin() {
    let client = start();
    let made =
        make::<DLManagedTensorVersioned>(&[3, 2], &[10, 1], DLDataType::U64, DLDevice::CPU, DlpackFlags::empty(), 16);
    // SAFETY: as above.
    let (descriptor, layout) = unsafe { from_dlpack(&client, made.tensor) }.unwrap();
    assert_eq!(layout.memory.size_in_used(), 22 * 8);
    let view = TensorView {
        handle: &layout.memory,
        shape: &descriptor.shape,
        strides: &layout.strides,
        elem: descriptor.elem,
    };
    let read = client.read_tensor(&view).unwrap().to_vec::<u64>().unwrap();
    assert_eq!(read, [2, 3, 12, 13, 22, 23]);
}

#[test]
fn what_cannot_be_used_in_place_is_named_and_deleted() {
    let client = start();
    let (words, cpu, none) = (DLDataType::U64, DLDevice::CPU, DlpackFlags::empty());
    let complex = DLDataType::new(DLDataTypeCode::COMPLEX, 64, 1);
    type Check = fn(&DlpackError) -> bool;
    let misaligned: Check = |e| matches!(e, DlpackError::Runtime(Error::Misaligned { alignment: 16, .. }));
    let cases: [(Made<DLManagedTensorVersioned>, Check); 5] = [
        (make(&[4], &[1], words, DLDevice::cuda(1), none, 0), |e| {
            matches!(e, DlpackError::Device { kind: 2, index: 1 })
        }),
        (make(&[4], &[1], complex, cpu, none, 0), |e| matches!(e, DlpackError::Elem { code: 5, .. })),
        (make(&[4], &[1], words, cpu, DlpackFlags::READ_ONLY, 0), |e| matches!(e, DlpackError::ReadOnly)),
        (make(&[4], &[-1], words, cpu, none, 0), |e| matches!(e, DlpackError::Layout { .. })),
        (make(&[4], &[1], words, cpu, none, 4), misaligned),
    ];
    for (made, check) in cases {
        // SAFETY: as above.
        let error = unsafe { from_dlpack(&client, made.tensor) }.unwrap_err();
        assert!(check(&error), "{error:?}");
        assert!(!error.to_string().is_empty());
        assert_eq!(made.deleted.load(Ordering::Relaxed), 1, "{error}");
    }
    assert_eq!(client.memory_usage().unwrap().live, 0);
}

#[test]
fn what_is_read_only_is_copied() {
    let client = start();
    let read_only = DlpackFlags::READ_ONLY;
    let made = make::<DLManagedTensorVersioned>(&[2, 3], &[3, 1], DLDataType::U64, DLDevice::CPU, read_only, 8);
    // SAFETY: as above.
    let (descriptor, layout) = unsafe { copy_from_dlpack(&client, &made.tensor) }.unwrap();
    assert_eq!(descriptor.shape, [2, 3]);
    assert_eq!(client.read_one(&layout.memory).unwrap().to_vec::<u64>().unwrap(), [1, 2, 3, 4, 5, 6]);
    let gaps = plain::<DLManagedTensor>(&[2, 2], &[9, 1]);
    // SAFETY: as above.
    let error = unsafe { copy_from_dlpack(&client, &gaps.tensor) }.unwrap_err();
    assert!(matches!(error, DlpackError::Layout { .. }), "{error}");
    assert_eq!(made.deleted.load(Ordering::Relaxed), 0);
}

#[test]
fn a_tensor_of_a_device_says_what_it_is_and_keeps_its_memory_after_the_device() {
    let client = start();
    for elem in ElemType::ALL {
        let descriptor = TensorDescriptor::optimized([3, 5], elem);
        let layout = client.empty_tensor(&descriptor).unwrap();
        client.fill(&layout.memory, &[7]).unwrap();
        let tensor = to_dlpack::<DLManagedTensorVersioned>(&client, &descriptor, &layout).unwrap();
        let view = tensor.validate_export().unwrap();
        let strides: Vec<i64> = layout.strides.iter().map(|n| *n as i64).collect();
        assert_eq!((view.shape(), view.strides()), ([3, 5].as_slice(), Some(strides.as_slice())));
        assert_eq!((view.dtype().element_size() as u64, view.device()), (elem.size(), DLDevice::CPU));
        // SAFETY: the tensor keeps its memory, which has a byte.
        assert_eq!(unsafe { view.data_ptr().cast::<u8>().read() }, 7);
    }
    let descriptor = TensorDescriptor::contiguous([64], ElemType::U8);
    let layout = client.create_tensor_from_slice(&descriptor, &[5; 64]).unwrap();
    let tensor = to_dlpack::<DLManagedTensor>(&client, &descriptor, &layout).unwrap();
    drop(layout);
    assert_eq!(client.memory_usage().unwrap().live, 64);
    client.shutdown(Duration::from_secs(10));
    drop(client);
    let view = tensor.validate().unwrap();
    // SAFETY: the tensor keeps its memory.
    assert_eq!(unsafe { view.cpu_slice::<u8>() }.unwrap(), [5; 64]);
}

#[test]
fn tensors_without_elements_go_both_ways() {
    let client = start();
    let descriptor = TensorDescriptor::contiguous([3, 0], ElemType::F32);
    let layout = client.empty_tensor(&descriptor).unwrap();
    let tensor = to_dlpack::<DLManagedTensorVersioned>(&client, &descriptor, &layout).unwrap();
    assert_eq!(tensor.validate().unwrap().num_elements(), 0);
    // SAFETY: there is nothing to be used.
    let (back, layout) = unsafe { from_dlpack(&client, tensor) }.unwrap();
    assert_eq!((back.shape, layout.memory.size_in_used()), (vec![3, 0], 0));
}

#[test]
fn layouts_that_leave_their_memory_are_refused_on_the_way_out() {
    let client = start();
    let descriptor = TensorDescriptor::contiguous([8], ElemType::F32);
    let mut layout = client.empty_tensor(&descriptor).unwrap();
    layout.memory = layout.memory.slice(..16).unwrap();
    let error = to_dlpack::<DLManagedTensor>(&client, &descriptor, &layout).map(|_| ()).unwrap_err();
    assert!(matches!(error, DlpackError::Runtime(Error::OutOfRange { .. })), "{error}");
}

#[test]
fn devices_of_other_backends_have_no_memory_that_dlpack_could_name() {
    let client = start_as(BackendName::new("elsewhere").unwrap());
    let descriptor = TensorDescriptor::contiguous([8], ElemType::F32);
    let layout = client.empty_tensor(&descriptor).unwrap();
    let error = to_dlpack::<DLManagedTensor>(&client, &descriptor, &layout).map(|_| ()).unwrap_err();
    assert!(matches!(error, DlpackError::Runtime(Error::Unsupported { .. })), "{error}");
    let made = plain::<DLManagedTensor>(&[4], &[1]);
    // SAFETY: as above.
    let error = unsafe { from_dlpack(&client, made.tensor) }.unwrap_err();
    assert!(matches!(error, DlpackError::Runtime(Error::Unsupported { .. })), "{error}");
    assert_eq!(made.deleted.load(Ordering::Relaxed), 1);
}
