//! Every byte that the engine owns, by place and role.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stoker_core::{Error, Place, Role};

/// Bytes of one place and role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Account {
    now: u64,
    peak: u64,
}

impl Account {
    fn add(&mut self, bytes: u64) {
        self.now += bytes;
        self.peak = self.peak.max(self.now);
    }
}

#[derive(Debug, Default)]
struct Book {
    by_role: BTreeMap<(Place, Role), Account>,
    by_place: BTreeMap<Place, Account>,
    limits: BTreeMap<Place, u64>,
}

/// The most bytes that there were at once.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Peak {
    /// Where.
    pub place: Place,
    /// What for; `None` is the peak of the place as a whole, which is less than the sum of its roles' peaks.
    pub role: Option<Role>,
    /// How many.
    pub bytes: u64,
}

/// The books of one rank. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Book>>);

/// Bytes that are in the books until this is dropped.
#[derive(Debug)]
#[must_use = "the bytes leave the books when this is dropped"]
pub struct Allotment {
    ledger: Ledger,
    place: Place,
    role: Role,
    bytes: u64,
}

impl Ledger {
    /// Books that refuse what would exceed a limit.
    pub fn with_limits(limits: impl IntoIterator<Item = (Place, u64)>) -> Self {
        let book = Book { limits: limits.into_iter().collect(), ..Book::default() };
        Self(Arc::new(Mutex::new(book)))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing panics while the lock is held, and sums of a poisoned book would still be right.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters `bytes` for `unit`.
    ///
    /// # Errors
    /// [`Error::Full`] when the place's limit would be exceeded.
    pub fn allot(&self, place: Place, role: Role, unit: &str, bytes: u64) -> Result<Allotment, Error> {
        let mut book = self.book();
        let now = book.by_place.get(&place).map_or(0, |account| account.now);
        if let Some(limit) = book.limits.get(&place).copied()
            && now + bytes > limit
        {
            return Err(Error::Full {
                unit: unit.to_owned(),
                role,
                place,
                needed: bytes,
                available: limit.saturating_sub(now),
                advice: format!(
                    "Raise {place}.memory_limit, or lower schedule.pool_bytes, or use more ranks or a higher zero.stage"
                ),
            });
        }
        book.by_role.entry((place, role)).or_default().add(bytes);
        book.by_place.entry(place).or_default().add(bytes);
        drop(book);
        Ok(Allotment { ledger: self.clone(), place, role, bytes })
    }

    /// Bytes of a place and role now.
    pub fn now(&self, place: Place, role: Role) -> u64 {
        self.book().by_role.get(&(place, role)).map_or(0, |account| account.now)
    }

    /// All peaks: of each place as a whole, then by role.
    pub fn peaks(&self) -> Vec<Peak> {
        let book = self.book();
        let places = book.by_place.iter().map(|(&place, account)| Peak { place, role: None, bytes: account.peak });
        let roles =
            book.by_role.iter().map(|(&(place, role), account)| Peak { place, role: Some(role), bytes: account.peak });
        places.chain(roles).collect()
    }
}

impl Drop for Allotment {
    fn drop(&mut self) {
        let mut book = self.ledger.book();
        if let Some(account) = book.by_role.get_mut(&(self.place, self.role)) {
            account.now -= self.bytes;
        }
        if let Some(account) = book.by_place.get_mut(&self.place) {
            account.now -= self.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_and_go_and_the_peak_stays() {
        let ledger = Ledger::default();
        let one = ledger.allot(Place::Device, Role::Slab, "u", 10).unwrap();
        let two = ledger.allot(Place::Device, Role::GradientBucket, "u", 5).unwrap();
        drop(one);
        assert_eq!(ledger.now(Place::Device, Role::Slab), 0);
        let _three = ledger.allot(Place::Device, Role::Slab, "u", 4).unwrap();
        drop(two);
        let peaks = ledger.peaks();
        assert!(peaks.contains(&Peak { place: Place::Device, role: None, bytes: 15 }));
        assert!(peaks.contains(&Peak { place: Place::Device, role: Some(Role::Slab), bytes: 10 }));
    }

    #[test]
    fn a_limit_refuses_and_says_what_is_left() {
        let ledger = Ledger::with_limits([(Place::Device, 12)]);
        let _one = ledger.allot(Place::Device, Role::Slab, "u", 10).unwrap();
        let error = ledger.allot(Place::Device, Role::GradientBucket, "conv", 5).unwrap_err().to_string();
        assert!(
            error.starts_with("unit `conv` wants 5 bytes of device memory for gradient_bucket, 2 are left."),
            "{error}"
        );
        assert_eq!(ledger.now(Place::Device, Role::GradientBucket), 0);
        assert!(ledger.allot(Place::Host, Role::Staging, "u", 100).is_ok());
    }
}
