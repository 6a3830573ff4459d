//! How much memory the machine can still give this process.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the machine describes itself.
#[derive(Debug, Clone)]
pub struct Machine {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys/fs/cgroup`.
    pub cgroup: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self { proc: "/proc".into(), cgroup: "/sys/fs/cgroup".into() }
    }
}

impl Machine {
    /// Bytes that can be allocated before the kernel has to swap or to kill: `MemAvailable`, or what the limits of this
    /// process's cgroup and those around it leave. `None` where the machine does not say (it is not Linux).
    pub fn available(&self) -> Option<u64> {
        smaller(self.mem_available(), self.cgroup_left())
    }

    fn mem_available(&self) -> Option<u64> {
        let text = fs::read_to_string(self.proc.join("meminfo")).ok()?;
        let kib: u64 = text
            .lines()
            .find_map(|line| line.strip_prefix("MemAvailable:"))?
            .trim()
            .strip_suffix("kB")?
            .trim()
            .parse()
            .ok()?;
        kib.checked_mul(1024)
    }

    fn cgroup_left(&self) -> Option<u64> {
        let groups = fs::read_to_string(self.proc.join("self/cgroup")).ok()?;
        groups.lines().fold(None, |least, line| {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
                return least;
            };
            let left = if controllers.is_empty() {
                self.least_upwards(&self.cgroup, path, &V2)
            } else if controllers.split(',').any(|controller| controller == "memory") {
                self.least_upwards(&self.cgroup.join("memory"), path, &V1)
            } else {
                None
            };
            smaller(least, left)
        })
    }

    /// A limit of an outer group binds the inner ones. In a container the path may name what is outside of its own
    /// mount: what cannot be read limits nothing, and the root that is mounted is always among the groups asked.
    fn least_upwards(&self, root: &Path, path: &str, files: &Files) -> Option<u64> {
        let inside = Path::new(path.trim_start_matches('/'));
        inside.ancestors().fold(None, |least, group| smaller(least, files.left(&root.join(group))))
    }
}

/// The smaller of two amounts, of which either may be unknown.
pub fn smaller(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

/// What the two versions of cgroups call the same three numbers.
struct Files {
    limit: &'static str,
    usage: &'static str,
    reclaimable: &'static str,
}

const V2: Files = Files { limit: "memory.max", usage: "memory.current", reclaimable: "inactive_file" };
const V1: Files =
    Files { limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", reclaimable: "total_inactive_file" };

impl Files {
    /// The group's limit less what it uses; the page cache that the kernel drops first counts as free. `None` without a
    /// limit (version 2 says `max`).
    fn left(&self, group: &Path) -> Option<u64> {
        let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        let limit = number(self.limit)?;
        let usage = number(self.usage)?;
        let cache = fs::read_to_string(group.join("memory.stat")).ok().and_then(|text| {
            let mut words = text.lines().filter_map(|line| line.split_once(' '));
            words.find(|(name, _)| *name == self.reclaimable)?.1.trim().parse::<u64>().ok()
        });
        Some(limit.saturating_sub(usage.saturating_sub(cache.unwrap_or(0))))
    }
}
