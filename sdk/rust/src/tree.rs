//! Memory reports.
use crate::abi::*;
use crate::error::{check, Error};
use std::ffi::CString;

/// Description of a memory entry. Defaults: host memory, always live, at the root of the tree.
#[derive(Debug, Clone)]
pub struct Entry {
    name: String,
    component: u32,
    tier: u32,
    phases: u32,
    parent: u32,
    formula: Option<String>,
}

impl Entry {
    /// Creates an entry. `component`: `TH_MEM_*`.
    pub fn new(name: impl Into<String>, component: u32) -> Entry {
        Entry { name: name.into(), component, tier: TH_TIER_HOST, phases: 0, parent: 0, formula: None }
    }
    /// Sets the memory tier: `TH_TIER_*`.
    pub fn tier(mut self, tier: u32) -> Entry {
        self.tier = tier;
        self
    }
    /// Sets the step phases in which it is live: a mask of `TH_PH_*`; 0 = always.
    pub fn phases(mut self, phases: u32) -> Entry {
        self.phases = phases;
        self
    }
    /// Sets the formula of its bytes, for display: `"L*B*S*H*4"`.
    pub fn formula(mut self, formula: impl Into<String>) -> Entry {
        self.formula = Some(formula.into());
        self
    }
    /// Sets its parent: an id that [`Tree::exact`] or the like returned.
    pub fn parent(mut self, id: u32) -> Entry {
        self.parent = id;
        self
    }
}

/// Former name of [`Entry`].
pub type Leaf = Entry;

/// Builds a memory report. Functions that add an entry return its id, which may become the parent of later
/// entries.
pub struct Tree {
    sink: *mut th_mem_sink,
    summary: *mut th_mem_summary,
    count: u32,
}

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

impl Tree {
    pub(crate) unsafe fn from_raw(sink: *mut th_mem_sink, summary: *mut th_mem_summary) -> Tree {
        Tree { sink, summary, count: 0 }
    }
    /// Adds an exact number.
    pub fn exact(&mut self, entry: Entry, bytes: u64) -> Result<u32, Error> {
        self.send(entry, TH_EXACT, bytes, bytes, bytes)
    }
    /// Adds an upper bound.
    pub fn upper_bound(&mut self, entry: Entry, bytes: u64) -> Result<u32, Error> {
        self.send(entry, TH_UPPER_BOUND, bytes, 0, bytes)
    }
    /// Adds an approximation; the true value is claimed to be between `lo` and `hi`, and the claim is scored.
    pub fn approximation(&mut self, entry: Entry, bytes: u64, lo: u64, hi: u64) -> Result<u32, Error> {
        self.send(entry, TH_APPROXIMATION, bytes, lo, hi)
    }
    /// Adds a sentence for the user: what is not counted, and why.
    pub fn note(&mut self, sentence: impl AsRef<str>) -> Result<(), Error> {
        let sink = unsafe { &*self.sink };
        match sink.note {
            Some(note) if sink.struct_size as usize >= core::mem::size_of::<th_mem_sink>() => check(
                unsafe { note(self.sink, c_text(sentence.as_ref()).as_ptr()) },
                "the host rejected a note",
            ),
            _ => Ok(()),
        }
    }
    /// Sets the peak of a tier and its phase `TH_PH_*`. Without it the host computes both from the entries.
    pub fn peak(&mut self, tier: u32, bytes: u64, phase: u32) {
        self.summary(|s| {
            if let (Some(peak), Some(when)) =
                (s.tier_peak.get_mut(tier as usize), s.peak_phase.get_mut(tier as usize))
            {
                (*peak, *when) = (bytes, phase);
            }
        });
    }
    /// Sets the kind of the total: `TH_EXACT`, `TH_UPPER_BOUND` or `TH_APPROXIMATION`.
    pub fn claim(&mut self, claim: u32) {
        self.summary(|s| s.claim = claim);
    }
    /// Sets the digest of the plan: equal digests mean equal plans. 0 = none.
    pub fn digest(&mut self, digest: u64) {
        self.summary(|s| s.digest = digest);
    }

    fn summary(&mut self, change: impl FnOnce(&mut th_mem_summary)) {
        if !self.summary.is_null() {
            unsafe {
                let mut full = crate::model::read_in(self.summary);
                change(&mut full);
                crate::model::write_out(self.summary, &full);
            }
        }
    }
    fn send(&mut self, entry: Entry, claim: u32, bytes: u64, lo: u64, hi: u64) -> Result<u32, Error> {
        self.count += 1;
        let (name, formula) = (c_text(&entry.name), entry.formula.as_deref().map(c_text));
        let mut node: th_mem = unsafe { core::mem::zeroed() };
        node.struct_size = core::mem::size_of::<th_mem>() as u32;
        (node.id, node.parent, node.tier, node.component) =
            (self.count, entry.parent, entry.tier, entry.component);
        (node.claim, node.phases, node.bytes, node.lo, node.hi) = (claim, entry.phases, bytes, lo, hi);
        node.name = name.as_ptr();
        node.formula = formula.as_ref().map_or(core::ptr::null(), |f| f.as_ptr());
        let send = unsafe { (*self.sink).node }.ok_or_else(|| Error::argument("the sink has no function"))?;
        check(unsafe { send(self.sink, &node) }, "the host rejected a memory node")?;
        Ok(self.count)
    }
}
