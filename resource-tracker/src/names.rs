//! Names of operations, each kept once, so that the log can remember one for every operation without allocating.

use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashMap;

/// The name of a kind of operation, from [`Tracker::name`](crate::Tracker::name) of the tracker it is used with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(u32);

#[derive(Debug, Default)]
pub(crate) struct Names {
    text: Vec<Arc<str>>,
    known: HashMap<Arc<str>, Name>,
}

impl Names {
    pub(crate) fn intern(&mut self, name: &str) -> Name {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let text: Arc<str> = Arc::from(name);
        let id = Name(self.text.len() as u32);
        self.text.push(Arc::clone(&text));
        self.known.insert(text, id);
        id
    }

    /// The text; for a name of another tracker, what tells that.
    pub(crate) fn text(&self, name: Name) -> &str {
        self.text.get(name.0 as usize).map_or("an operation without a name", |text| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let mut names = Names::default();
        let copy = names.intern("copy");
        let fill = names.intern("fill");
        assert_eq!((names.intern("copy"), names.text.len()), (copy, 2));
        assert_eq!((names.text(copy), names.text(fill)), ("copy", "fill"));
        assert_eq!(Names::default().text(fill), "an operation without a name");
    }
}
