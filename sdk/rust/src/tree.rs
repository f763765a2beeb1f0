//! A memory report, leaf by leaf.
use crate::abi::*;
use crate::error::{check, Error};
use std::ffi::CString;

/// What a leaf says besides its size. Unless told otherwise it lies on the host, is always there and stands at the root.
#[derive(Debug, Clone)]
pub struct Leaf {
    name: String,
    component: u32,
    tier: u32,
    phases: u32,
    parent: u32,
    formula: Option<String>,
}

impl Leaf {
    /// `component`: `TH_MEM_*`.
    pub fn new(name: impl Into<String>, component: u32) -> Leaf {
        Leaf { name: name.into(), component, tier: TH_TIER_HOST, phases: 0, parent: 0, formula: None }
    }
    /// Where it lies: `TH_TIER_*`.
    pub fn tier(mut self, tier: u32) -> Leaf {
        self.tier = tier;
        self
    }
    /// When it is there: `TH_PH_*`, or-ed; 0 = always.
    pub fn phases(mut self, phases: u32) -> Leaf {
        self.phases = phases;
        self
    }
    /// What the bytes are computed from, for people: `"L*B*S*H*4"`.
    pub fn formula(mut self, formula: impl Into<String>) -> Leaf {
        self.formula = Some(formula.into());
        self
    }
    /// The id of the leaf it is a part of, as [`Tree::exact`] and the others returned it.
    pub fn parent(mut self, id: u32) -> Leaf {
        self.parent = id;
        self
    }
}

/// Builds the report of one call; ids are given out in order.
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
    /// Counted: never more and never less.
    pub fn exact(&mut self, leaf: Leaf, bytes: u64) -> Result<u32, Error> {
        self.send(leaf, TH_EXACT, bytes, bytes, bytes)
    }
    /// Never more than this.
    pub fn upper_bound(&mut self, leaf: Leaf, bytes: u64) -> Result<u32, Error> {
        self.send(leaf, TH_UPPER_BOUND, bytes, 0, bytes)
    }
    /// About this, and the truth lies between `lo` and `hi`: the claim is scored.
    pub fn approximation(&mut self, leaf: Leaf, bytes: u64, lo: u64, hi: u64) -> Result<u32, Error> {
        self.send(leaf, TH_APPROXIMATION, bytes, lo, hi)
    }
    /// A sentence for the user: what the number leaves out, and why.
    pub fn note(&mut self, sentence: impl AsRef<str>) -> Result<(), Error> {
        let sink = unsafe { &*self.sink };
        match sink.note {
            Some(note) if sink.struct_size as usize >= core::mem::size_of::<th_mem_sink>() => {
                check(unsafe { note(self.sink, c_text(sentence.as_ref()).as_ptr()) }, "the host refused a note")
            }
            _ => Ok(()),
        }
    }
    /// The worst moment of a tier: bytes and `TH_PH_*`. Without it the host adds up the leaves.
    pub fn peak(&mut self, tier: u32, bytes: u64, phase: u32) {
        self.summary(|s| {
            if let (Some(peak), Some(when)) = (s.tier_peak.get_mut(tier as usize), s.peak_phase.get_mut(tier as usize)) {
                (*peak, *when) = (bytes, phase);
            }
        });
    }
    /// What the whole report is: `TH_EXACT`, `TH_UPPER_BOUND` or `TH_APPROXIMATION`.
    pub fn claim(&mut self, claim: u32) {
        self.summary(|s| s.claim = claim);
    }
    /// Of the plan: two reports with the same digest are the same plan. 0 = none.
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
    fn send(&mut self, leaf: Leaf, claim: u32, bytes: u64, lo: u64, hi: u64) -> Result<u32, Error> {
        self.count += 1;
        let (name, formula) = (c_text(&leaf.name), leaf.formula.as_deref().map(c_text));
        let mut node: th_mem = unsafe { core::mem::zeroed() };
        node.struct_size = core::mem::size_of::<th_mem>() as u32;
        (node.id, node.parent, node.tier, node.component) = (self.count, leaf.parent, leaf.tier, leaf.component);
        (node.claim, node.phases, node.bytes, node.lo, node.hi) = (claim, leaf.phases, bytes, lo, hi);
        node.name = name.as_ptr();
        node.formula = formula.as_ref().map_or(core::ptr::null(), |f| f.as_ptr());
        let send = unsafe { (*self.sink).node }.ok_or_else(|| Error::argument("the host gave a sink without a function"))?;
        check(unsafe { send(self.sink, &node) }, "the host refused a memory node")?;
        Ok(self.count)
    }
}
