//! Checked access to memory: by which operation, on which device, ordered after what.

use alloc::sync::Arc;
use core::fmt;

use super::page::{Moment, Noticed, PAGE};
use super::region::{Kind, Region};
use super::space::AddressSpace;
use crate::clock::{Clock, Stamp};
use crate::codes::{Code, Fault};
use crate::host;
use crate::report::{ReportKind, Reports};

/// Where in a kernel an access comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) thread: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([x, y, z], [bx, by, bz]) = (self.thread, self.block);
        write!(f, "thread ({x},{y},{z}) of block ({bx},{by},{bz}), PTX line {}", self.line)
    }
}

/// Whose memory a device may touch.
pub(crate) trait Visitor {
    /// The device that does the work.
    fn device(&self) -> u32;
    /// Whether kernels here may touch memory that was made in another device's context.
    fn reaches(&self, context: usize) -> bool;
    /// Whether kernels here may touch memory of a pool of another device.
    fn reaches_pool(&self, pool: usize) -> bool;
    /// Where what is noticed goes.
    fn reports(&self) -> &Reports;
}

/// Regions that were found last are looked at first.
const REMEMBERED: usize = 4;

/// Memory as one operation sees it.
pub(crate) struct Access<'a> {
    space: &'a AddressSpace,
    visitor: &'a dyn Visitor,
    stamp: Stamp,
    clock: &'a Clock,
    /// What the operation is called in reports.
    name: &'a str,
    place: Option<Place>,
    remembered: [Option<Arc<Region>>; REMEMBERED],
    next: usize,
    said_race: bool,
    said_uninitialised: bool,
}

impl<'a> Access<'a> {
    pub(crate) fn new(
        space: &'a AddressSpace,
        visitor: &'a dyn Visitor,
        stamp: Stamp,
        clock: &'a Clock,
        name: &'a str,
    ) -> Self {
        Self {
            space,
            visitor,
            stamp,
            clock,
            name,
            place: None,
            remembered: [const { None }; REMEMBERED],
            next: 0,
            said_race: false,
            said_uninitialised: false,
        }
    }

    pub(crate) fn name(&self) -> &'a str {
        self.name
    }

    pub(crate) fn report(&self, kind: ReportKind, text: String) {
        self.visitor.reports().add(kind, text);
    }

    /// Says where in the kernel the accesses that follow come from.
    #[inline]
    pub(crate) fn stand_at(&mut self, place: Place) {
        self.place = Some(place);
    }

    pub(crate) fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let moment = Moment { stamp: self.stamp, clock: self.clock };
        let mut done = 0;
        self.each(address, out.len(), false, |region, offset, length| {
            let part = &mut out[done..done + length];
            done += length;
            if let Some(from) = region.backing.host(offset) {
                host::read(from, part);
                return Noticed::default();
            }
            let page = region
                .backing
                .with_page(offset as usize / PAGE, |page| page.read(offset as usize % PAGE, part, moment));
            page.unwrap_or_default()
        })
    }

    pub(crate) fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Fault> {
        let moment = Moment { stamp: self.stamp, clock: self.clock };
        let mut done = 0;
        self.each(address, data.len(), true, |region, offset, length| {
            let part = &data[done..done + length];
            done += length;
            if let Some(to) = region.backing.host(offset) {
                host::write(to, part);
                return Noticed::default();
            }
            let page = region
                .backing
                .with_page(offset as usize / PAGE, |page| page.write(offset as usize % PAGE, part, moment));
            page.unwrap_or_default()
        })
    }

    /// Sets `length` bytes to `byte`.
    pub(crate) fn fill(&mut self, address: u64, byte: u8, length: usize) -> Result<(), Fault> {
        let moment = Moment { stamp: self.stamp, clock: self.clock };
        self.each(address, length, true, |region, offset, length| {
            if let Some(to) = region.backing.host(offset) {
                host::write(to, &vec![byte; length]);
                return Noticed::default();
            }
            let page = region
                .backing
                .with_page(offset as usize / PAGE, |page| page.fill(offset as usize % PAGE, length, byte, moment));
            page.unwrap_or_default()
        })
    }

    /// Replaces up to eight aligned bytes by what `f` makes of them, and gives what was there.
    pub(crate) fn atomic(&mut self, address: u64, size: usize, f: &mut dyn FnMut(u64) -> u64) -> Result<u64, Fault> {
        let moment = Moment { stamp: self.stamp, clock: self.clock };
        let mut old = 0;
        self.each(address, size, true, |region, offset, _| {
            if let Some(at) = region.backing.host(offset) {
                old = host::replace(at, size, f);
                return Noticed::default();
            }
            let page = region.backing.with_page(offset as usize / PAGE, |page| {
                let (was, noticed) = page.replace(offset as usize % PAGE, size, f, moment);
                old = was;
                noticed
            });
            page.unwrap_or_default()
        })?;
        Ok(old)
    }

    /// What giving a region back meets: accesses that are not over are reported.
    pub(crate) fn end(&mut self, region: &Arc<Region>) {
        let moment = Moment { stamp: self.stamp, clock: self.clock };
        let mut noticed = Vec::new();
        region.backing.for_each_page(|index, page| {
            let found = page.end(moment);
            if found.conflict.is_some() {
                noticed.push((index, found));
            }
        });
        if let Some((index, found)) = noticed.into_iter().next() {
            self.tell(region, (index * PAGE) as u64, found, "frees");
        }
    }

    /// Calls `f` for the part of each page that a range covers, with the offset in the region's backing.
    #[inline]
    fn each(
        &mut self,
        address: u64,
        length: usize,
        writes: bool,
        mut f: impl FnMut(&Region, u64, usize) -> Noticed,
    ) -> Result<(), Fault> {
        let (mut at, mut left) = (address, length);
        while left > 0 {
            let slot = self.locate(at, left as u64, writes)?;
            // Taken out, so that what is noticed can be told meanwhile.
            let Some(region) = self.remembered[slot].take() else { return Ok(()) };
            let end = region.end().min(at + left as u64);
            while at < end {
                let offset = region.offset + (at - region.base);
                let part = match region.backing.host(offset) {
                    Some(_) => (end - at) as usize,
                    None => ((end - at) as usize).min(PAGE - offset as usize % PAGE),
                };
                let noticed = f(&region, offset, part);
                if noticed != Noticed::default() {
                    let start = (offset - offset % PAGE as u64).saturating_sub(region.offset);
                    self.tell(&region, start, noticed, if writes { "writes" } else { "reads" });
                }
                at += part as u64;
                left -= part;
            }
            self.remembered[slot] = Some(region);
        }
        Ok(())
    }

    /// The place among the remembered regions of the one that holds these bytes.
    #[inline]
    fn locate(&mut self, address: u64, size: u64, writes: bool) -> Result<usize, Fault> {
        let holds = |region: &Option<Arc<Region>>| {
            region.as_ref().is_some_and(|region| {
                address >= region.base
                    && address + size <= region.end()
                    && !region.is_freed()
                    && region.kind != Kind::Mapped
            })
        };
        if let Some(slot) = self.remembered.iter().position(holds) {
            return Ok(slot);
        }
        let region = self.space.find(address, size)?;
        self.allowed(&region, address, writes)?;
        if !self.clock.knows(region.birth()) && !core::mem::replace(&mut self.said_race, true) {
            let text = format!(
                "{} uses 0x{address:x}, whose allocation by line {} nothing orders before it{}",
                self.who(),
                region.birth().line,
                self.at()
            );
            self.report(ReportKind::StreamRace, text);
        }
        let slot = self.next;
        self.next = (slot + 1) % REMEMBERED;
        self.remembered[slot] = Some(region);
        Ok(slot)
    }

    fn allowed(&self, region: &Region, address: u64, writes: bool) -> Result<(), Fault> {
        let (here, there) = (self.visitor.device(), region.backing.device);
        let denied = |why: String| Err(Fault::new(Code::ILLEGAL_ADDRESS, why));
        match region.kind {
            Kind::Mapped => match region.protection(here) {
                Some(protection) if protection.reads && (protection.writes || !writes) => Ok(()),
                Some(_) => denied(format!("0x{address:x} is mapped read-only for device {here}")),
                None => denied(format!("0x{address:x} is mapped, and device {here} was given no access")),
            },
            Kind::Host { .. } | Kind::Managed => Ok(()),
            Kind::Pooled { pool } if here != there && self.place.is_some() => {
                if self.visitor.reaches_pool(pool) {
                    return Ok(());
                }
                denied(format!(
                    "0x{address:x} is memory of a pool of device {there}, which gave device {here} no access"
                ))
            }
            // Copies between devices need no peer access; only kernels say where they are.
            _ if here == there || self.place.is_none() || self.visitor.reaches(region.context) => Ok(()),
            _ => {
                denied(format!("0x{address:x} is memory of device {there}, to which device {here} has no peer access"))
            }
        }
    }

    fn who(&self) -> String {
        format!("{} (line of work {}, operation {})", self.name, self.stamp.line, self.stamp.tick)
    }

    fn at(&self) -> String {
        self.place.map_or(String::new(), |place| format!(", by {place}"))
    }

    /// Reports what a page noticed, once an operation and kind.
    #[cold]
    fn tell(&mut self, region: &Region, start: u64, noticed: Noticed, does: &str) {
        if let Some(conflict) = noticed.conflict
            && !core::mem::replace(&mut self.said_race, true)
        {
            let into = start + conflict.at as u64;
            let text = format!(
                "{} {does} 0x{:x}, {into} bytes into an allocation of {} bytes, which operation {} of line of work {} {}, \
                 and nothing orders the two{}",
                self.who(),
                region.base + into,
                region.size,
                conflict.with.tick,
                conflict.with.line,
                if conflict.wrote { "writes" } else { "reads" },
                self.at()
            );
            self.report(ReportKind::StreamRace, text);
        }
        if let Some(at) = noticed.uninitialised
            && !core::mem::replace(&mut self.said_uninitialised, true)
        {
            let into = start + at as u64;
            let text = format!(
                "{} reads 0x{:x}, {into} bytes into an allocation of {} bytes, which nobody wrote{}",
                self.who(),
                region.base + into,
                region.size,
                self.at()
            );
            self.report(ReportKind::Uninitialised, text);
        }
    }
}
