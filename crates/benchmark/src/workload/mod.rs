//! What is sent: commands whose keys and values follow patterns, and the order in which they come.

mod command;
mod fuzz;
mod numbers;
mod placeholders;
mod random;
mod slots;
mod suite;
mod values;

use std::{collections::VecDeque, sync::Arc};

pub use command::{PADDED_LEN, TAG_LEN, Template, TemplatePart};
pub use fuzz::{Fuzz, ServerOptions};
pub use numbers::{Numbers, PatternCursor, Zipf};
pub use placeholders::{KeyOrder, KeyRange, Placeholders, sequence};
pub use random::WorkloadRandom;
pub use slots::SlotSet;
pub use suite::{SuiteRequest, SuiteShape, TESTS, Test};
pub use values::{Content, Sizes, ValuePool};

/// A load: it is the same for all connections, and what differs between them is a
/// [`WorkloadState`].
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// The rows of the statistics, by name.
    pub classes: Vec<String>,
    pub templates: Vec<Template>,
    pub patterns: Vec<Numbers>,
    pub values: Vec<ValuePool>,
    pub order: TemplateOrder,
    /// In a cluster, numbers are drawn until a key of this prefix and the number is the node's own.
    pub key_prefix: Option<Vec<u8>>,
    /// Patterns whose numbers are in no key: they may be any.
    pub free_patterns: Vec<usize>,
}

/// Which template comes next.
#[derive(Clone, Debug, Default)]
pub enum TemplateOrder {
    /// There is only one.
    #[default]
    Single,
    /// Each as often as it says, then the next, and round again.
    Cycle(Vec<(usize, u64)>),
    /// Drawn by these weights.
    Weighted(Vec<(usize, u64)>),
}

/// Where one connection is in a workload.
#[derive(Clone, Debug)]
pub struct WorkloadState {
    random: WorkloadRandom,
    cursors: Vec<PatternCursor>,
    /// The numbers of the request that is being written.
    drawn: Vec<u64>,
    step: usize,
    step_left: u64,
    /// Templates of the next requests, which were drawn before it was known whether they may go.
    ahead: VecDeque<usize>,
    /// Requests of fixed length that lie in the output and need only be patched.
    prepared: usize,
    tags: Arc<[[u8; TAG_LEN]]>,
    /// The slots of the node, where keys are chosen by them.
    slots: Option<Arc<SlotSet>>,
    key: Vec<u8>,
}

/// Requests that were written, of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub class: u16,
    pub replies: u32,
    pub bytes: usize,
}

impl Workload {
    /// A workload of one template.
    pub fn single(name: &str, template: Template, patterns: Vec<Numbers>) -> Self {
        Self {
            classes: vec![name.to_owned()],
            templates: vec![template],
            patterns,
            ..Self::default()
        }
    }

    /// How many replies a request brings, in the mean over all that the order has.
    pub fn replies_per_request(&self) -> f64 {
        let weights = match &self.order {
            TemplateOrder::Single => &[(0, 1)][..],
            TemplateOrder::Cycle(weights) | TemplateOrder::Weighted(weights) => weights,
        };
        let replies = |&(index, weight): &(usize, u64)| {
            self.templates.get(index).map_or(0.0, |t| f64::from(t.replies)) * weight as f64
        };
        let all: u64 = weights.iter().map(|(_, weight)| weight).sum();
        weights.iter().map(replies).sum::<f64>() / all.max(1) as f64
    }

    /// How many commands each request has, where all have as many.
    pub fn commands_each(&self) -> Option<u64> {
        let first = self.templates.first()?.replies;
        let is_alike = self.templates.iter().all(|template| template.replies == first);
        is_alike.then_some(u64::from(first))
    }

    /// How many commands each of the next `count` requests has.
    pub fn draw_ahead(
        &self,
        state: &mut WorkloadState,
        count: usize,
    ) -> impl Iterator<Item = u64> + Clone {
        while state.ahead.len() < count {
            let template = self.draw_template(state);
            state.ahead.push_back(template);
        }
        let commands = |&index: &usize| u64::from(self.templates[index].replies);
        state.ahead.iter().take(count).map(commands)
    }

    /// The state of the connection `index` of `connections`. `tags` lead to its node of a cluster,
    /// and are empty without one.
    pub fn state(
        &self,
        index: usize,
        connections: usize,
        seed: u64,
        tags: Arc<[[u8; TAG_LEN]]>,
    ) -> WorkloadState {
        let slots = self.key_prefix.is_some() && !tags.is_empty();
        WorkloadState {
            random: WorkloadRandom::new(seed.wrapping_add(index as u64)),
            cursors: self.patterns.iter().map(|p| p.cursor(index, connections)).collect(),
            drawn: vec![0; SLOTS_MAX],
            step: 0,
            step_left: self.first_repeat(),
            ahead: VecDeque::new(),
            prepared: 0,
            slots: slots.then(|| Arc::new(SlotSet::of_tags(&tags))),
            tags,
            key: Vec::new(),
        }
    }

    /// Makes `output` hold `count` requests, whatever it held before, and says how many bytes of it
    /// they are: where requests differ by their numbers only, it holds what was sent the last time
    /// and just the numbers are written. `request` is the index of the first over the whole load.
    #[inline]
    pub fn fill(
        &self,
        state: &mut WorkloadState,
        request: u64,
        count: usize,
        output: &mut Vec<u8>,
        mut written: impl FnMut(Written),
    ) -> usize {
        let template = &self.templates[0];
        let Some(len) =
            template.fixed_len().filter(|_| matches!(self.order, TemplateOrder::Single))
        else {
            output.clear();
            for index in 0..count {
                written(self.append(state, request + index as u64, output));
            }
            return output.len();
        };
        if state.prepared < count {
            output.clear();
            for _ in 0..count {
                output.extend_from_slice(template.fixed_bytes());
            }
            state.prepared = count;
        }
        if !template.is_constant() {
            for index in 0..count {
                template.draw(self, state, request + index as u64);
                let tag = state.tag();
                template.patch(state, tag, &mut output[index * len..][..len]);
            }
        }
        written(Written {
            class: template.class,
            replies: template.replies * count as u32,
            bytes: count * len,
        });
        count * len
    }

    /// Appends one request to `output`.
    pub fn append(&self, state: &mut WorkloadState, request: u64, output: &mut Vec<u8>) -> Written {
        let template = &self.templates[self.next_template(state)];
        state.prepared = 0;
        let start = output.len();
        template.draw(self, state, request);
        let tag = state.tag();
        template.append(self, state, tag, output);
        Written { class: template.class, replies: template.replies, bytes: output.len() - start }
    }

    fn next_template(&self, state: &mut WorkloadState) -> usize {
        match state.ahead.pop_front() {
            Some(index) => index,
            None => self.draw_template(state),
        }
    }

    fn draw_template(&self, state: &mut WorkloadState) -> usize {
        match &self.order {
            TemplateOrder::Single => 0,
            TemplateOrder::Cycle(steps) => {
                while state.step_left == 0 {
                    state.step = (state.step + 1) % steps.len();
                    state.step_left = steps[state.step].1;
                }
                state.step_left -= 1;
                steps[state.step].0
            }
            TemplateOrder::Weighted(weights) => {
                let total = weights.iter().map(|(_, weight)| weight).sum();
                let mut at = state.random.below(total);
                for (template, weight) in weights {
                    if at < *weight {
                        return *template;
                    }
                    at -= weight;
                }
                0
            }
        }
    }

    fn first_repeat(&self) -> u64 {
        match &self.order {
            TemplateOrder::Cycle(steps) => steps.first().map_or(0, |(_, repeat)| *repeat),
            _ => 0,
        }
    }

    /// What would make the load fail or run for ever without a request.
    pub fn check(&self) -> Result<(), String> {
        if self.templates.is_empty() {
            return Err("there is no command to send".into());
        }
        let positive = match &self.order {
            TemplateOrder::Single => true,
            TemplateOrder::Cycle(steps) | TemplateOrder::Weighted(steps) => {
                steps.iter().any(|(_, n)| *n > 0)
            }
        };
        if let TemplateOrder::Cycle(steps) | TemplateOrder::Weighted(steps) = &self.order {
            let sum = steps.iter().try_fold(0_u64, |sum, (_, weight)| sum.checked_add(*weight));
            sum.ok_or("the weights are too large")?;
        }
        if positive { Ok(()) } else { Err("at least one ratio must be above 0".into()) }
    }
}

impl WorkloadState {
    /// From now on keys are those of the node that these tags lead to.
    pub fn move_to(&mut self, tags: Arc<[[u8; TAG_LEN]]>) {
        if self.slots.is_some() {
            self.slots = Some(Arc::new(SlotSet::of_tags(&tags)));
        }
        self.tags = tags;
    }

    #[inline]
    fn tag(&mut self) -> [u8; TAG_LEN] {
        match self.tags.len() {
            0 => *b"tag",
            len => self.tags[self.random.below(len as u64) as usize],
        }
    }
}

/// Numbers that one request may have.
pub const SLOTS_MAX: usize = 1024;
