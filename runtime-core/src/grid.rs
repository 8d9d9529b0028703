//! How many workgroups a launch runs.

use crate::error::{Error, Result};
use crate::handle::Handle;

/// The workgroups of a launch.
///
/// Equivalent to: `gridDim` of `cuLaunchKernel`; the counts of `vkCmdDispatch` or, for a dynamic one, of `vkCmdDispatchIndirect`;
/// `dispatch_workgroups` and `dispatch_workgroups_indirect`.
#[derive(Clone, Debug)]
pub enum Grid {
    /// Counts known now, on the axes x, y and z. With a zero in it nothing happens and nothing is compiled.
    Static(u32, u32, u32),
    /// Counts that are three `u32` at the start of a buffer when the launch runs, written there by any stream before it.
    Dynamic(Handle),
}

/// How many workgroups counts on three axes make, as far as 64 bits tell.
#[inline]
pub fn workgroups([x, y, z]: [u32; 3]) -> u64 {
    (u64::from(x) * u64::from(y)).saturating_mul(u64::from(z))
}

impl Grid {
    /// A grid along one axis.
    pub const fn x(count: u32) -> Self {
        Self::Static(count, 1, 1)
    }

    /// A grid over two axes.
    pub const fn xy(x: u32, y: u32) -> Self {
        Self::Static(x, y, 1)
    }

    /// The grid along x that covers `items` with workgroups of `workgroup` invocations.
    ///
    /// # Errors
    /// [`Error::GridTooLarge`] when the count does not fit 32 bits; a workgroup of 0 counts as 1.
    pub fn cover(items: u64, workgroup: u32) -> Result<Self> {
        let count = items.div_ceil(u64::from(workgroup.max(1)));
        match u32::try_from(count) {
            Ok(count) => Ok(Self::x(count)),
            Err(_) => Err(Error::GridTooLarge { axis: 'x', requested: count, limit: u64::from(u32::MAX) }),
        }
    }

    /// Splits `count` workgroups over the axes so that each stays within `limits` and their product is at least `count`. The kernel
    /// must then stop where its linear index reaches the count.
    ///
    /// # Errors
    /// [`Error::GridTooLarge`] when all axes together cannot hold the count.
    pub fn spread(count: u64, limits: [u32; 3]) -> Result<Self> {
        if count == 0 {
            return Ok(Self::Static(0, 1, 1));
        }
        let [lx, ly, lz] = limits.map(|limit| u64::from(limit.max(1)));
        let z = count.div_ceil(lx.saturating_mul(ly));
        if z > lz {
            let requested = count.div_ceil(lx.saturating_mul(ly));
            return Err(Error::GridTooLarge { axis: 'z', requested, limit: lz });
        }
        let plane = count.div_ceil(z);
        let y = plane.div_ceil(lx);
        let x = plane.div_ceil(y);
        // Each is within a 32-bit limit by construction.
        Ok(Self::Static(x as u32, y as u32, z as u32))
    }

    /// Whether the grid is known to hold no workgroup.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        matches!(self, Self::Static(x, y, z) if *x == 0 || *y == 0 || *z == 0)
    }

    /// Whether the counts are static, none of them is zero and each is within its limit: one comparison an axis.
    #[inline]
    pub(crate) const fn is_plain(&self, limits: [u32; 3]) -> bool {
        match *self {
            Self::Static(x, y, z) => {
                x.wrapping_sub(1) < limits[0] && y.wrapping_sub(1) < limits[1] && z.wrapping_sub(1) < limits[2]
            }
            Self::Dynamic(_) => false,
        }
    }

    /// Checks static counts against a device's limits. With a zero in it a grid is within any.
    ///
    /// # Errors
    /// [`Error::GridTooLarge`] names the first axis over its limit.
    #[inline]
    pub fn check(&self, limits: [u32; 3]) -> Result<()> {
        match *self {
            Self::Static(x, y, z) if x > limits[0] || y > limits[1] || z > limits[2] => over([x, y, z], limits),
            _ => Ok(()),
        }
    }
}

/// Names the first axis over its limit, unless there is no workgroup anyway.
#[cold]
fn over(counts: [u32; 3], limits: [u32; 3]) -> Result<()> {
    if counts.contains(&0) {
        return Ok(());
    }
    let axis = (0..2).find(|axis| counts[*axis] > limits[*axis]).unwrap_or(2);
    Err(Error::GridTooLarge { axis: ['x', 'y', 'z'][axis], requested: counts[axis].into(), limit: limits[axis].into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(grid: &Grid) -> u64 {
        let Grid::Static(x, y, z) = *grid else { panic!("static") };
        u64::from(x) * u64::from(y) * u64::from(z)
    }

    #[test]
    fn spread_holds_every_count_within_the_limits() {
        let limits = [65_535, 65_535, 65_535];
        for count in [1, 2, 65_535, 65_536, 65_537, 1 << 31, 65_535 * 65_535, 65_535 * 65_535 + 1, 1 << 47] {
            let grid = Grid::spread(count, limits).unwrap();
            grid.check(limits).unwrap();
            assert!(product(&grid) >= count, "{count}: {grid:?}");
            assert!(product(&grid) < count + count / 1000 + 65_536 * 3, "{count}: {grid:?}");
        }
        assert!(Grid::spread(0, limits).unwrap().is_empty());
        assert!(Grid::spread(u64::MAX, limits).is_err());
        assert!(Grid::spread(9, [2, 2, 2]).is_err());
        assert_eq!(product(&Grid::spread(8, [2, 2, 2]).unwrap()), 8);
    }

    #[test]
    fn a_count_over_the_limit_names_axis_and_limit() {
        assert_eq!(Grid::Static(70_000, 0, 1).check([65_535; 3]), Ok(()), "it runs nothing");
        let error = Grid::xy(1, 70_000).check([65_535; 3]).unwrap_err();
        assert_eq!(error, Error::GridTooLarge { axis: 'y', requested: 70_000, limit: 65_535 });
    }
}
