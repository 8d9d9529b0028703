//! Page-locked memory, which the host pretends to have where an option gives it some: counted, and refused when there is no more.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use trunnion_backend_core::driver::DriverRefusal;
use trunnion_runtime_core::bytes::HostBuffer;
use trunnion_runtime_core::staging::PinnedMemory;

use crate::storage::Account;

struct Pinned {
    buffer: HostBuffer,
    account: Arc<Account>,
}

/// Locks memory of `size` bytes.
///
/// # Errors
/// A refusal when the account or the allocator has no such memory.
pub(crate) fn pin(size: usize, account: &Arc<Account>) -> Result<Box<dyn PinnedMemory>, DriverRefusal> {
    let refused = |message| DriverRefusal { message, out_of_memory: true };
    if !account.take(size as u64) {
        let (free, limit) = (account.free(), account.limit());
        return Err(refused(format!("option `pinned_memory`: {size} bytes requested, {free} of {limit} are free")));
    }
    match HostBuffer::zeroed(size) {
        Ok(buffer) => Ok(Box::new(Pinned { buffer, account: account.clone() })),
        Err(error) => {
            account.give(size as u64);
            Err(refused(format!("{error}")))
        }
    }
}

impl PinnedMemory for Pinned {
    fn as_slice(&self) -> &[u8] {
        self.buffer.as_slice()
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.buffer.as_mut_slice()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.account.give(self.buffer.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_memory_is_counted_until_it_is_dropped_and_refused_when_there_is_no_more() {
        let account = Arc::new(Account::new(100));
        let mut held = pin(60, &account).unwrap();
        held.as_mut_slice().fill(3);
        assert_eq!((held.as_slice(), account.free()), (&[3; 60][..], 40));
        let refusal = pin(41, &account).map(|_| ()).unwrap_err();
        assert!(refusal.out_of_memory && refusal.message.contains("41 bytes requested, 40 of 100"), "{refusal:?}");
        drop(held);
        assert!(pin(100, &account).is_ok());
        assert_eq!(account.free(), 100);
    }
}
