//! How much memory the machine can still give this process.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes, and where that number comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Available {
    /// How many.
    pub bytes: u64,
    /// What says so.
    pub source: String,
}

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
    pub fn available(&self) -> Option<Available> {
        smaller(self.mem_available(), self.cgroup_left())
    }

    fn mem_available(&self) -> Option<Available> {
        let text = fs::read_to_string(self.proc.join("meminfo")).ok()?;
        let kib: u64 = text
            .lines()
            .find_map(|line| line.strip_prefix("MemAvailable:"))?
            .trim()
            .strip_suffix("kB")?
            .trim()
            .parse()
            .ok()?;
        Some(Available { bytes: kib.checked_mul(1024)?, source: "MemAvailable".to_owned() })
    }

    fn cgroup_left(&self) -> Option<Available> {
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
    fn least_upwards(&self, root: &Path, path: &str, files: &Files) -> Option<Available> {
        let inside = Path::new(path.trim_start_matches('/'));
        inside.ancestors().fold(None, |least, group| smaller(least, files.left(root, group)))
    }
}

/// The smaller of two amounts, of which either may be unknown.
fn smaller(a: Option<Available>, b: Option<Available>) -> Option<Available> {
    a.into_iter().chain(b).min_by_key(|available| available.bytes)
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
    fn left(&self, root: &Path, inside: &Path) -> Option<Available> {
        let group = root.join(inside);
        let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        let limit = number(self.limit)?;
        let usage = number(self.usage)?;
        let cache = fs::read_to_string(group.join("memory.stat")).ok().and_then(|text| {
            let mut words = text.lines().filter_map(|line| line.split_once(' '));
            words.find(|(name, _)| *name == self.reclaimable)?.1.trim().parse::<u64>().ok()
        });
        let bytes = limit.saturating_sub(usage.saturating_sub(cache.unwrap_or(0)));
        Some(Available { bytes, source: format!("{} of cgroup /{}", self.limit, inside.display()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine made of these files, in a folder that goes with it.
    struct Made(PathBuf);

    impl Made {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("stoker-machine-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }

        fn available(&self) -> Option<(u64, String)> {
            let machine = Machine { proc: self.0.join("proc"), cgroup: self.0.join("cgroup") };
            machine.available().map(|Available { bytes, source }| (bytes, source))
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 900 kB\nMemFree: 1 kB\nMemAvailable:  100 kB\n");

    #[test]
    fn this_machine_has_memory() {
        if cfg!(target_os = "linux") {
            assert!(Machine::default().available().is_some_and(|available| available.bytes > 1 << 20));
        }
    }

    #[test]
    fn a_machine_that_says_nothing_is_unknown() {
        assert_eq!(Made::new("silent", &[]).available(), None);
        assert_eq!(Made::new("odd", &[("proc/meminfo", "MemAvailable: many kB\n")]).available(), None);
        assert_eq!(Made::new("free", &[MEMINFO]).available(), Some((102_400, "MemAvailable".to_owned())));
    }

    #[test]
    fn the_tightest_cgroup_binds() {
        let made = Made::new(
            "v2",
            &[
                MEMINFO,
                ("proc/self/cgroup", "0::/jobs/run\n"),
                ("cgroup/jobs/run/memory.max", "max\n"),
                ("cgroup/jobs/run/memory.current", "10\n"),
                ("cgroup/jobs/memory.max", "50000\n"),
                ("cgroup/jobs/memory.current", "45000\n"),
                ("cgroup/jobs/memory.stat", "anon 5\ninactive_file 2000\n"),
            ],
        );
        assert_eq!(made.available(), Some((7000, "memory.max of cgroup /jobs".to_owned())));
    }

    #[test]
    fn a_container_sees_its_own_root() {
        // The path is the host's; only the mounted root is there.
        let made = Made::new(
            "container",
            &[
                MEMINFO,
                ("proc/self/cgroup", "0::/docker/abc\n"),
                ("cgroup/memory.max", "5000\n"),
                ("cgroup/memory.current", "6000\n"),
            ],
        );
        assert_eq!(made.available(), Some((0, "memory.max of cgroup /".to_owned())));
    }

    #[test]
    fn version_1_is_understood() {
        let made = Made::new(
            "v1",
            &[
                MEMINFO,
                ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n"),
                ("cgroup/memory/x/memory.limit_in_bytes", "9000\n"),
                ("cgroup/memory/x/memory.usage_in_bytes", "1000\n"),
                ("cgroup/memory/x/memory.stat", "cache 5\ntotal_inactive_file 500\n"),
                ("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("cgroup/memory/memory.usage_in_bytes", "100\n"),
            ],
        );
        assert_eq!(made.available(), Some((8500, "memory.limit_in_bytes of cgroup /x".to_owned())));
    }
}
