//! Byte RLE.
//!
//! ```text
//! control   i8: c >= 0: c + 3 copies of the next byte; c < 0: -c literal bytes
//! ```

use crate::error::{Fault, corrupt, ensure};

/// The `count` bytes at the front of a stream.
pub(super) fn decode(mut bytes: &[u8], count: usize) -> Result<Vec<u8>, Fault> {
    // two bytes decode to at most 130
    let mut out = Vec::with_capacity(count.min(bytes.len().saturating_mul(65)));
    while out.len() < count {
        let Some((&control, rest)) = bytes.split_first() else {
            return corrupt(format!(
                "the stream ends after {} of {count} bytes",
                out.len()
            ));
        };
        let left = count - out.len();
        if control < 0x80 {
            let run = usize::from(control) + 3;
            let Some((&value, rest)) = rest.split_first() else {
                return corrupt("the stream ends in a run");
            };
            out.resize(out.len() + run.min(left), value);
            bytes = rest;
        } else {
            let literals = 256 - usize::from(control);
            ensure(rest.len() >= literals.min(left), || {
                format!("{literals} literals, {} bytes are left", rest.len())
            })?;
            let (run, rest) = rest.split_at(literals.min(rest.len()));
            out.extend_from_slice(run.get(..left).unwrap_or(run));
            bytes = rest;
        }
    }
    Ok(out)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes and a stream that encodes them, as runs and literals.
    pub(crate) fn streams() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let run = (3usize..=130, any::<u8>())
            .prop_map(|(run, value)| (vec![value; run], vec![(run - 3) as u8, value]));
        let literals = prop::collection::vec(any::<u8>(), 1..=128).prop_map(|literals| {
            let control = vec![(256 - literals.len()) as u8];
            let stream = [control, literals.clone()].concat();
            (literals, stream)
        });
        prop::collection::vec(prop_oneof![run, literals], 0..20).prop_map(|parts| {
            let (values, streams): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            (values.concat(), streams.concat())
        })
    }

    proptest! {
        #[test]
        fn round_trip((values, stream) in streams()) {
            prop_assert_eq!(&decode(&stream, values.len())?, &values);
            // bytes after the values are ignored, and values may be left
            for count in [0, values.len() / 2] {
                prop_assert_eq!(&decode(&stream, count)?, &values[..count]);
            }
            prop_assert!(decode(&stream, values.len() + 1).is_err());
        }

        #[test]
        fn any_bytes(bytes: Vec<u8>, count in 0usize..10_000) {
            if let Ok(values) = decode(&bytes, count) {
                prop_assert_eq!(values.len(), count);
            }
        }
    }

    #[test]
    fn of_the_specification() {
        assert_eq!(decode(&[0x61, 0x00], 100), Ok(vec![0; 100]));
        assert_eq!(decode(&[0xfe, 0x44, 0x45], 2), Ok(vec![0x44, 0x45]));
        for damaged in [&[][..], &[5], &[0xfe, 1]] {
            assert!(decode(damaged, 2).is_err());
        }
    }
}
