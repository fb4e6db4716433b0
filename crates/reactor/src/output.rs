//! A connection's output: a few bytes in place, more on the heap while it piles up.

/// Bytes kept in the connection's record: three answers of 9 bytes, since one may be waiting for its send's
/// verdict while the next is appended. Every idle connection pays for them.
pub const INLINE_BYTES: usize = 32;

/// Bytes in order: in place, then `front`, then `back`. While a piece of the front is in flight it neither
/// moves nor changes; everything new goes behind it.
pub(crate) struct Output {
    inline: [u8; INLINE_BYTES],
    inline_len: u8,
    /// Bytes at the front that the kernel was given; 0 if none.
    flight_len: u32,
    spill: Option<Box<Spill>>,
}

#[derive(Default)]
struct Spill {
    front: Vec<u8>,
    /// Bytes of `front` that are gone.
    gone: usize,
    back: Vec<u8>,
}

impl Spill {
    fn len(&self) -> usize {
        self.front.len() - self.gone + self.back.len()
    }
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { inline: [0; INLINE_BYTES], inline_len: 0, flight_len: 0, spill: None }
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.inline_len) + self.spill.as_ref().map_or(0, |spill| spill.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn flight_len(&self) -> usize {
        self.flight_len as usize
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.inline_len);
        let end = start + bytes.len();
        if self.spill.is_none() && end <= INLINE_BYTES {
            self.inline[start..end].copy_from_slice(bytes);
            self.inline_len = end as u8;
            return;
        }
        let spill = self.spill.get_or_insert_default();
        if self.flight_len == 0 && spill.len() == 0 {
            // One send for all of it.
            spill.back.extend_from_slice(&self.inline[..start]);
            self.inline_len = 0;
        }
        spill.back.extend_from_slice(bytes);
    }

    /// Whether the next piece is all there is.
    pub(crate) fn is_one_piece(&self) -> bool {
        match &self.spill {
            None => true,
            Some(spill) => self.inline_len == 0 && (spill.gone == spill.front.len() || spill.back.is_empty()),
        }
    }

    /// Takes the next piece into flight; it stays in place until [`Output::landed`].
    pub(crate) fn launch(&mut self) -> &[u8] {
        assert_eq!(self.flight_len, 0, "one piece at a time");
        let piece = if self.inline_len > 0 {
            &self.inline[..usize::from(self.inline_len)]
        } else {
            let spill = self.spill.as_mut().expect("there is output");
            if spill.gone == spill.front.len() {
                spill.front.clear();
                spill.gone = 0;
                std::mem::swap(&mut spill.front, &mut spill.back);
            }
            &spill.front[spill.gone..]
        };
        self.flight_len = u32::try_from(piece.len()).expect("output is bounded");
        piece
    }

    /// The flight is over and `gone` bytes of its piece are sent; the rest is output again.
    pub(crate) fn landed(&mut self, gone: usize) {
        assert!(gone <= self.flight_len(), "{gone} of {} bytes", self.flight_len);
        self.flight_len = 0;
        if self.inline_len > 0 {
            self.inline.copy_within(gone..usize::from(self.inline_len), 0);
            self.inline_len -= gone as u8;
        } else if let Some(spill) = &mut self.spill {
            spill.gone += gone;
        }
        if self.spill.as_ref().is_some_and(|spill| spill.len() == 0) {
            self.spill = None;
        }
    }

    /// Drops everything that is not in flight.
    pub(crate) fn discard(&mut self) {
        if self.inline_len > 0 || self.flight_len == 0 {
            self.inline_len = self.flight_len as u8;
            self.spill = None;
        } else if let Some(spill) = &mut self.spill {
            spill.back.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(output: &mut Output) -> Vec<u8> {
        let mut all = Vec::new();
        while !output.is_empty() {
            let piece = output.launch().to_vec();
            all.extend_from_slice(&piece);
            output.landed(piece.len());
        }
        all
    }

    #[test]
    fn bytes_come_out_in_order_whatever_lands() {
        // A small generator is enough: sizes and landings, not secrets.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let (mut output, mut next, mut sent) = (Output::new(), 0u8, Vec::new());
        for _ in 0..20_000 {
            match random(4) {
                0 if output.flight_len() == 0 && !output.is_empty() => {
                    let piece = output.launch().to_vec();
                    sent.extend_from_slice(&piece);
                }
                1 if output.flight_len() > 0 => {
                    let flight = output.flight_len();
                    let gone = random(flight + 1);
                    sent.truncate(sent.len() - (flight - gone));
                    output.landed(gone);
                }
                _ if output.len() < 500 => {
                    let bytes: Vec<u8> = (0..random(40)).map(|at| next.wrapping_add(at as u8)).collect();
                    next = next.wrapping_add(bytes.len() as u8);
                    output.push(&bytes);
                }
                _ => {}
            }
        }
        let flight = output.flight_len();
        output.landed(flight);
        sent.extend(drain(&mut output));
        assert!(sent.len() > 10_000);
        assert!(sent.iter().enumerate().all(|(at, &byte)| byte == at as u8));
    }

    #[test]
    fn the_heap_is_used_only_while_output_piles_up() {
        let mut output = Output::new();
        output.push(&[1; INLINE_BYTES]);
        assert!(output.spill.is_none() && output.is_one_piece());
        output.push(&[2]);
        assert!(output.spill.is_some());
        assert_eq!(output.launch().len(), INLINE_BYTES + 1, "moved together: one send");
        output.landed(INLINE_BYTES + 1);
        assert!(output.spill.is_none() && output.is_empty());
    }

    #[test]
    fn a_piece_in_flight_survives_a_discard() {
        let mut output = Output::new();
        output.push(&[1; 10]);
        output.launch();
        output.push(&[2; 100]);
        output.discard();
        assert_eq!((output.len(), output.flight_len()), (10, 10));
        output.landed(4);
        output.discard();
        assert!(output.is_empty());

        output.push(&[3; 100]);
        output.launch();
        output.push(&[4; 100]);
        assert!(!output.is_one_piece());
        output.discard();
        assert_eq!(output.len(), 100);
        output.landed(100);
        assert!(output.is_empty());
    }
}
