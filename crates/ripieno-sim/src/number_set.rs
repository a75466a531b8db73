//! A set of small integers that is filled and emptied as a whole.

/// A set of small integers, optimized for large sets that are read as a whole.
#[derive(Debug, Default)]
pub(crate) struct NumberSet {
    marks: Vec<bool>,
    /// All members, and some former members.
    pub(crate) list: Vec<u32>,
    count: usize,
}

impl NumberSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.marks.get(number as usize).is_some_and(|&mark| mark)
    }

    pub(crate) fn insert(&mut self, number: u32) {
        let index = number as usize;
        if self.marks.len() <= index {
            self.marks.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.marks[index], true) {
            self.list.push(number);
            self.count += 1;
        }
    }

    pub(crate) fn remove(&mut self, number: u32) {
        if self.contains(number) {
            self.marks[number as usize] = false;
            self.count -= 1;
        }
    }

    /// Remove and return all members in ascending order.
    pub(crate) fn take(&mut self) -> Vec<u32> {
        let mut all = std::mem::take(&mut self.list);
        all.retain(|&number| std::mem::replace(&mut self.marks[number as usize], false));
        all.sort_unstable();
        self.count = 0;
        all
    }
}
