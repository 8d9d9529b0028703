//! Typed buffers on a host device.
#![cfg(feature = "host")]

use trunnion::platform::{Deadline, block_on};
use trunnion::prelude::*;
use trunnion::{Error, Result};

fn client() -> Client {
    trunnion::open("host").unwrap()
}

#[test]
fn elements_come_back_as_they_were_written() {
    let client = client();
    // The longest is large enough to go to device memory in place.
    for len in [1, 3, 1000, 200_000] {
        let numbers: Vec<f32> = (0..len).map(|i| i as f32).collect();
        let buffer = Buffer::from_slice(&client, &numbers).unwrap();
        assert_eq!((buffer.len(), buffer.is_empty(), buffer.size_in_used()), (len, false, 4 * len as u64));
        assert_eq!(buffer.read().unwrap(), numbers);
        let doubled: Vec<f32> = numbers.iter().map(|x| x * 2.0).collect();
        buffer.write(&doubled).unwrap();
        let mut into = vec![0.0; len];
        buffer.read_into(&mut into).unwrap();
        assert_eq!(into, doubled);
        let reading = buffer.read_async().unwrap();
        buffer.fill(7.0).unwrap();
        let read = block_on(reading, &Deadline::after(core::time::Duration::from_secs(10))).unwrap().unwrap();
        assert_eq!(read, doubled, "a future reads what was there when it was asked for");
        assert_eq!(buffer.read().unwrap(), vec![7.0; len]);
    }
}

#[test]
fn a_buffer_may_hold_no_elements() {
    let client = client();
    for buffer in [
        Buffer::<u64>::from_slice(&client, &[]).unwrap(),
        Buffer::zeroed(&client, 0).unwrap(),
        Buffer::empty(&client, 0).unwrap(),
        Buffer::from_slice(&client, &[1, 2]).unwrap().slice(2..).unwrap(),
    ] {
        assert!(buffer.is_empty() && buffer.slice(..).unwrap().is_empty());
        buffer.write(&[]).unwrap();
        buffer.fill(3).unwrap();
        assert_eq!(buffer.read().unwrap(), []);
        buffer.read_into(&mut []).unwrap();
        assert!(matches!(buffer.write(&[1]), Err(Error::WrongLength { got: 8, expected: 0, .. })));
    }
}

#[test]
fn a_slice_counts_elements_and_is_the_same_memory() {
    let client = client();
    let buffer = Buffer::from_slice(&client, &[0u16, 1, 2, 3, 4, 5]).unwrap();
    let middle = buffer.slice(1..=3).unwrap();
    assert_eq!(middle.read().unwrap(), [1, 2, 3]);
    middle.slice(2..).unwrap().write(&[9]).unwrap();
    buffer.slice(..1).unwrap().copy_from(&buffer.slice(5..).unwrap()).unwrap();
    assert_eq!(buffer.clone().read().unwrap(), [5, 1, 2, 9, 4, 5]);
    assert_eq!(
        buffer.slice((core::ops::Bound::Excluded(4), core::ops::Bound::Unbounded)).unwrap().read().unwrap(),
        [5]
    );
    for bad in [buffer.slice(..7), buffer.slice(7..), buffer.slice(..=usize::MAX), buffer.slice(usize::MAX..)] {
        assert!(matches!(bad, Err(Error::OutOfRange { size: 12, .. })), "{bad:?}");
    }
    let backwards = (core::ops::Bound::Included(3), core::ops::Bound::Excluded(2));
    assert!(
        matches!(buffer.slice(backwards), Err(Error::OutOfRange { range, .. }) if range.start == 6 && range.end == 4)
    );
}

#[test]
fn another_number_of_elements_is_refused_in_bytes() {
    let buffer = Buffer::from_slice(&client(), &[1u32, 2, 3]).unwrap();
    assert!(matches!(buffer.write(&[1]), Err(Error::WrongLength { got: 4, expected: 12, .. })));
    assert!(matches!(buffer.read_into(&mut [0; 4]), Err(Error::WrongLength { got: 16, expected: 12, .. })));
    assert!(matches!(
        buffer.copy_from(&buffer.slice(..1).unwrap()),
        Err(Error::WrongLength { got: 4, expected: 12, .. })
    ));
    assert_eq!(buffer.read().unwrap(), [1, 2, 3]);
}

#[test]
fn sizes_no_device_can_have_are_refused() {
    let client = client();
    assert!(matches!(Buffer::<u64>::empty(&client, usize::MAX), Err(Error::SizeOverflow { .. })));
    assert!(matches!(Buffer::<u64>::zeroed(&client, usize::MAX / 2), Err(Error::SizeOverflow { .. })));
    assert!(matches!(Buffer::<u8>::zeroed(&client, usize::MAX), Err(Error::TooLarge { .. })));
}

#[test]
fn memory_becomes_a_buffer_where_elements_fit_it() {
    let client = client();
    let handle = client.create_from_slice(&[0; 16]).unwrap();
    let buffer = Buffer::<u32>::try_from_handle(&client, handle.clone()).unwrap();
    assert_eq!(buffer.len(), 4);
    assert!(buffer.into_handle().same_allocation(&handle));
    let refused = |range: core::ops::Range<u64>| {
        Buffer::<u32>::try_from_handle(&client, handle.slice(range).unwrap()).unwrap_err()
    };
    assert!(matches!(refused(0..15), Error::Misaligned { value: 15, alignment: 4, .. }));
    assert!(matches!(refused(2..6), Error::Misaligned { value: 2, alignment: 4, .. }));

    let config = Config::new().backend(Device::index("host", 1)).option("host", "devices", "2");
    let other = trunnion::open_with(&config).unwrap();
    assert!(matches!(Buffer::<u32>::try_from_handle(&other, handle), Err(Error::ForeignHandle { .. })));
}

#[test]
fn a_buffer_goes_to_another_device() {
    let config = Config::new().backend(Device::index("host", 1)).option("host", "devices", "2");
    let (here, there) = (client(), trunnion::open_with(&config).unwrap());
    let buffer = Buffer::from_slice(&here, &[1i64, -2, 3]).unwrap();
    let copy = buffer.to_client(&there).unwrap();
    assert_eq!(copy.client().service_id(), there.service_id());
    assert_eq!(copy.read().unwrap(), [1, -2, 3]);
}

#[test]
fn buffers_of_several_types_handles_and_parameters_are_arguments_of_one_launch() -> Result<()> {
    #[repr(C)]
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    struct Parameters {
        scale: f32,
        offset: f32,
    }
    let interface = Interface::new().read().read().overwrite(16).parameters_of::<Parameters>();
    let gather = SourceKernel::new("gather", interface).workgroup_size([4, 1, 1]).source(Source::host(|group| {
        let (values, indices, p) = (group.read::<f32>(0)?, group.read::<u32>(1)?, group.parameters::<Parameters>()?);
        let part = group.part_range::<f32>(2)?;
        for (output, index) in group.part::<f32>(2)?.iter_mut().zip(&indices[part]) {
            *output = values[*index as usize] * p.scale + p.offset;
        }
        Ok(())
    }));
    let client = client();
    let gather = client.prepare(gather)?;
    let values = Buffer::from_slice(&client, &[1.0f32, 2.0, 3.0])?;
    let indices = Buffer::from_slice(&client, &[2u32, 2, 0, 1, 0])?;
    let output = client.empty(20)?;
    let parameters = Parameters { scale: 10.0, offset: 0.5 };
    client.launch(&gather, Grid::cover(indices.len() as u64, 4)?, args![&values, &indices, &output; &parameters])?;
    let output = Buffer::<f32>::try_from_handle(&client, output)?;
    assert_eq!(output.read()?, [30.5, 30.5, 10.5, 20.5, 10.5]);

    // Buffers of one type may also be given as handles, as an array.
    let double = SourceKernel::new("double", Interface::new().partition(4)).source(Source::host(|group| {
        group.part::<f32>(0)?.iter_mut().for_each(|x| *x *= 2.0);
        Ok(())
    }));
    client.launch(&client.prepare(double)?, Grid::x(5), [output.handle()])?;
    assert_eq!(output.read()?, [61.0, 61.0, 21.0, 41.0, 21.0]);
    Ok(())
}

#[test]
fn buffers_go_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let buffer = Buffer::zeroed(&client(), 4).unwrap();
    shared(&buffer);
    std::thread::scope(|s| s.spawn(|| buffer.write(&[1u8, 2, 3, 4]).unwrap()).join().unwrap());
    assert_eq!(buffer.read().unwrap(), [1, 2, 3, 4]);
}
