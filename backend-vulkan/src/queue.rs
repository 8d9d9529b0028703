//! A queue of the device: what was submitted to it, how far it is, and the thread that waits for it.
//!
//! A queue has one timeline semaphore, whose value is the number of the last submission that is finished. The streams of a queue need
//! none of their own: the signal at the end of a submission comes after everything that was submitted to the queue before, so signals of
//! one queue happen in order, and no stream could be told of its end sooner. Submissions are counted by the queue rather than by the
//! device's numbers, since a device bounds how far a semaphore's value may be ahead of what it has reached.
//!
//! What a submission wrote needs no barrier for whoever waits for its semaphore on the device: the signal makes all writes of the device
//! available, and the wait makes them visible. For the host a batch ends with a barrier of its own ([`stream`](crate::stream)).
//!
//! The thread sleeps while nothing is unfinished, and waits in the driver otherwise. It looks up every [`SLICE`] only while work that
//! takes longer is unfinished, to end when the device does.

use crate::device::Device;
use crate::failure::failed;
use alloc::format;
use alloc::sync::Arc;
use ash::vk;
use core::fmt;
use core::mem;
use core::sync::atomic::Ordering;
use core::time::Duration;
use smallvec::SmallVec;
use std::sync::{Mutex, PoisonError};
use trunnion_backend_core::exit::{self, Step};
use trunnion_backend_core::loss::Loss;
use trunnion_backend_core::waiter::{Waiter, Watched};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::Notifier;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::sync::AtomicU64;

/// The longest that the thread waits for unfinished work before it looks whether the device is still wanted.
const SLICE: Duration = Duration::from_millis(250);

/// A submission of a queue, to be waited for.
pub(crate) type Wait = (Arc<Queue>, u64);

/// What a submission has to do with others: it comes after the waits and the values of somebody else's semaphores, and brings further
/// semaphores to their values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links<'a> {
    pub(crate) waits: &'a [Wait],
    pub(crate) events: &'a [(vk::Semaphore, u64)],
    pub(crate) signals: &'a [(vk::Semaphore, u64)],
}

pub(crate) struct Queue {
    device: Arc<Device>,
    loss: Arc<Loss>,
    family: u32,
    raw: Mutex<vk::Queue>,
    timeline: vk::Semaphore,
    /// How many submissions there were.
    submitted: AtomicU64,
    /// How many of them are known to be finished.
    reached: AtomicU64,
    waiter: Waiter,
}

impl Queue {
    /// A queue of the device's, with nothing submitted.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn new(device: &Arc<Device>, loss: &Arc<Loss>, family: u32, raw: vk::Queue) -> Result<Self> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device has timeline semaphores, without which it is not taken.
        let timeline = unsafe { device.raw.create_semaphore(&info, None) }
            .map_err(|result| loss.note(failed("vkCreateSemaphore", result)))?;
        Ok(Self {
            device: device.clone(),
            loss: loss.clone(),
            family,
            raw: Mutex::new(raw),
            timeline,
            submitted: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            waiter: Waiter::default(),
        })
    }

    /// The queue's family.
    pub(crate) fn family(&self) -> u32 {
        self.family
    }

    /// Starts the thread, unless it was started.
    ///
    /// # Errors
    /// [`Error::Driver`] when the system gives no thread.
    pub(crate) fn watch(self: &Arc<Self>, notifier: &Notifier) -> Result<()> {
        let watch = Watch { queue: self.clone(), seen: 0 };
        self.waiter.start("trunnion-vulkan", watch, Some(notifier))
    }

    /// Submits a command buffer, or nothing but a signal, behind submissions of other queues. The submission's number.
    ///
    /// # Safety
    /// The command buffer is of this queue's family and executable; it, what it uses and every semaphore stay until the submission is
    /// finished.
    ///
    /// # Errors
    /// What the driver answers; nothing was then submitted.
    pub(crate) unsafe fn submit(&self, command: Option<vk::CommandBuffer>, links: Links<'_>) -> Result<u64> {
        self.loss.check()?;
        let mut semaphores: SmallVec<[vk::Semaphore; 4]> = SmallVec::new();
        let mut values: SmallVec<[u64; 4]> = SmallVec::new();
        let of_queues = links.waits.iter().map(|(queue, value)| (queue.timeline, *value));
        for (semaphore, value) in of_queues.chain(links.events.iter().copied()) {
            semaphores.push(semaphore);
            values.push(value);
        }
        let stages: SmallVec<[vk::PipelineStageFlags; 4]> =
            SmallVec::from_elem(vk::PipelineStageFlags::ALL_COMMANDS, semaphores.len());
        let commands: SmallVec<[vk::CommandBuffer; 1]> = command.into_iter().collect();
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let value = self.submitted.load(Ordering::Relaxed) + 1;
        let mut signals: SmallVec<[vk::Semaphore; 2]> = smallvec::smallvec![self.timeline];
        let mut signal_values: SmallVec<[u64; 2]> = smallvec::smallvec![value];
        for (semaphore, value) in links.signals {
            signals.push(*semaphore);
            signal_values.push(*value);
        }
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&values)
            .signal_semaphore_values(&signal_values);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&stages)
            .command_buffers(&commands)
            .signal_semaphores(&signals)
            .push_next(&mut timeline);
        // SAFETY: the queue is locked, the timeline is its own and stays as long as something is unfinished, and the command buffer and all
        // other semaphores are the caller's promise.
        unsafe { self.device.raw.queue_submit(*raw, &[info], vk::Fence::null()) }
            .map_err(|result| self.loss.note(failed("vkQueueSubmit", result)))?;
        self.submitted.store(value, Ordering::Release);
        drop(raw);
        exit::after(Step::Submitted);
        self.waiter.rouse();
        Ok(value)
    }

    /// Whether a submission is known to be finished, without asking the driver.
    #[inline]
    pub(crate) fn has_reached(&self, value: u64) -> bool {
        self.reached.load(Ordering::Acquire) >= value
    }

    /// Asks the driver how many submissions are finished. A driver that has no memory to say it has not lost its device: then those count
    /// that are known to be.
    ///
    /// # Errors
    /// The device's fault.
    pub(crate) fn look(&self) -> Result<u64> {
        // SAFETY: the semaphore is this queue's.
        let value = match unsafe { self.device.raw.get_semaphore_counter_value(self.timeline) } {
            Ok(value) => value,
            Err(vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY) => {
                return Ok(self.reached.load(Ordering::Acquire));
            }
            Err(result) => return Err(self.loss.note(failed("vkGetSemaphoreCounterValue", result))),
        };
        // One submission may be finished before it is counted. A driver that lost its device may answer any value.
        if value > self.submitted.load(Ordering::Acquire).saturating_add(1) {
            let cause = format!("vkGetSemaphoreCounterValue: {value}, which was never submitted");
            return Err(self.loss.note(Error::DeviceLost { cause }));
        }
        self.reached.fetch_max(value, Ordering::AcqRel);
        Ok(value)
    }

    /// Waits, at most until the deadline, until everything submitted is finished. Whether it is; on a lost device it is once the driver
    /// says so.
    pub(crate) fn drain(&self, deadline: &Deadline) -> bool {
        let value = self.submitted.load(Ordering::Acquire);
        if self.has_reached(value) {
            return true;
        }
        let left = deadline.remaining().map_or(u64::MAX, |left| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
        match self.wait(value, left) {
            Ok(()) => true,
            Err(vk::Result::ERROR_DEVICE_LOST) => {
                self.loss.note(failed("vkWaitSemaphores", vk::Result::ERROR_DEVICE_LOST));
                true
            }
            Err(_) => false,
        }
    }

    fn wait(&self, value: u64, nanoseconds: u64) -> Result<(), vk::Result> {
        let (semaphores, values) = ([self.timeline], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is this queue's.
        unsafe { self.device.raw.wait_semaphores(&info, nanoseconds) }?;
        self.reached.fetch_max(value, Ordering::AcqRel);
        Ok(())
    }

    /// Ends the thread: at once where nothing is unfinished, else after at most [`SLICE`] and without being waited for.
    pub(crate) fn end(&self) {
        self.waiter.end(|| self.is_idle());
    }

    /// Whether the device has nothing of this queue's any more.
    pub(crate) fn is_idle(&self) -> bool {
        let submitted = self.submitted.load(Ordering::Acquire);
        self.has_reached(submitted)
            || match self.look() {
                Ok(value) => value >= submitted,
                Err(error) => error.is_device_lost(),
            }
    }
}

/// The queue, as its thread knows it.
struct Watch {
    queue: Arc<Queue>,
    /// The last submission that was waited for.
    seen: u64,
}

impl Watched for Watch {
    type Next = u64;

    fn next(&mut self) -> Option<u64> {
        (self.queue.submitted.load(Ordering::Acquire) != self.seen).then_some(self.seen + 1)
    }

    fn wait(&mut self, value: &u64) -> Result<bool> {
        let queue = &self.queue;
        queue.loss.check()?;
        match queue.wait(*value, SLICE.as_nanos() as u64) {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            // Short of host memory, perhaps.
            Err(result) => Err(queue.loss.note(failed("vkWaitSemaphores", result))),
        }
    }

    fn finished(&mut self, value: u64) {
        let queue = &self.queue;
        let reached = queue.look().unwrap_or(value).min(queue.submitted.load(Ordering::Acquire));
        self.seen = reached.max(value);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.is_idle() {
            // SAFETY: nothing submitted signals it any more, and whoever waits for it on the device holds this queue.
            unsafe { self.device.raw.destroy_semaphore(self.timeline, None) };
        } else {
            log::warn!("a queue of {} still works: it is left to itself", self.device.properties.info.device);
            mem::forget(self.device.clone());
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("family", &self.family)
            .field("submitted", &self.submitted.load(Ordering::Relaxed))
            .field("reached", &self.reached.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::VulkanDriver;
    use crate::options::VulkanOptions;
    use crate::rig;
    use alloc::vec::Vec;
    use trunnion_backend_core::driver::{Driver, Outcome, Place};
    use trunnion_runtime_core::bytes::HostBuffer;
    use trunnion_runtime_core::layout::Rows;
    use trunnion_runtime_core::server::Pattern;

    /// As devices with several queues are driven: each of the streams on a queue of its own, which share one of the device's.
    fn with_queues(count: usize, test: impl Fn(&mut VulkanDriver)) {
        let options = VulkanOptions::default().staging(true);
        let many = |device: &mut Device| device.queues = Vec::from_iter((0..count).map(|_| device.queues[0]));
        rig::each_changed(&options, many, |device| test(&mut VulkanDriver::new(device.clone()).unwrap()));
    }

    #[test]
    fn streams_of_different_queues_wait_for_each_other_by_semaphores() {
        with_queues(3, |driver| {
            let page = driver.allocate(4096).unwrap();
            let place = |offset| Place { page: &page, offset, size: 256 };
            let rows = Rows::single(256);
            let mut streams: Vec<_> = (0..3).map(|_| driver.open_stream().unwrap()).collect();
            for seq in 1..=30_u64 {
                let [a, b, c] = &mut streams[..] else { panic!("three streams were opened") };
                // SAFETY: the test waits before the page is freed, and tells what comes after what.
                unsafe {
                    if seq > 1 {
                        driver.wait(a, c, seq - 1);
                    }
                    driver.fill(a, seq, place(0), Pattern::new(&[seq as u8]).unwrap()).unwrap();
                    driver.submit(a, seq).unwrap();
                    driver.wait(b, a, seq);
                    driver.copy(b, seq, place(0), &rows, place(256), &rows).unwrap();
                    driver.submit(b, seq).unwrap();
                    driver.wait(c, b, seq);
                    // A second wait for the same queue: the later one counts.
                    driver.wait(c, a, seq);
                    driver.read(c, seq, 0, place(256), &rows, HostBuffer::zeroed(256).unwrap()).unwrap();
                    driver.submit(c, seq).unwrap();
                }
            }
            assert!(driver.drain(&Deadline::after(Duration::from_secs(20))));
            let mut outcome = Outcome::default();
            assert_eq!(driver.poll(&mut streams[2], &mut outcome), Ok(30));
            assert_eq!(outcome.read.len(), 30);
            for (seq, _, bytes) in &outcome.read {
                assert!(bytes.as_slice().iter().all(|byte| *byte == *seq as u8), "read {seq}");
            }
            streams.into_iter().for_each(|stream| driver.close_stream(stream));
        });
    }

    #[test]
    fn a_semaphore_lives_as_long_as_a_batch_waits_for_it() {
        with_queues(2, |driver| {
            let page = driver.allocate(4096).unwrap();
            let place = Place { page: &page, offset: 0, size: 4096 };
            let (mut a, mut b) = (driver.open_stream().unwrap(), driver.open_stream().unwrap());
            // SAFETY: the test waits before the page is freed.
            unsafe { driver.fill(&mut a, 1, place, Pattern::new(&[1]).unwrap()) }.unwrap();
            driver.submit(&mut a, 1).unwrap();
            driver.wait(&mut b, &mut a, 1);
            driver.submit(&mut b, 1).unwrap();
            assert!(driver.drain(&Deadline::after(Duration::from_secs(20))));
            driver.close_stream(a);
            assert_eq!(driver.poll(&mut b, &mut Outcome::default()), Ok(1));
            driver.close_stream(b);
        });
    }
}
