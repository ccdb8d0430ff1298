//! String compression on the device, compared with that of `vectile-encodings`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, BinaryArray};
use vectile_emulator::{CpuDevice, Recorder};
use vectile_encodings::{
    Column, Compressor, EncodeOptions, Encoding, Selection, Splits, Uncompressed, encode,
};
use vectile_gpu::{Driver, Engine, Error};

use crate::catalog::comments;
use crate::samples::Nulls;
use crate::strings::bytes;
use crate::support::{device, driver};

/// Counts the splits that the device compresses.
#[derive(Debug)]
struct OnDevice(Arc<Engine>, AtomicUsize);

impl Compressor for OnDevice {
    fn compress(&self, strings: &Uncompressed<'_>) -> Option<Splits> {
        let splits = self.0.compress(strings, true).unwrap().splits;
        self.1.fetch_add(splits.ends.len(), Ordering::Relaxed);
        Some(splits)
    }
}

fn arrays() -> Vec<ArrayRef> {
    let mut arrays = vec![comments(3000, 1), comments(33, 2)];
    for (seed, (len, most, alphabet)) in [
        (2500, 40, 3),
        (70, 3000, 2),
        (2, 1000, 256),
        (900, 30, 256),
        (32, 1, 40),
        (500, 17, 60),
    ]
    .into_iter()
    .enumerate()
    {
        let nulls = [Nulls::None, Nulls::Some][seed % 2];
        arrays.push(bytes(len, most, alphabet, nulls, seed as u64));
    }
    let nothing = vec![&b""[..]; 40];
    let some = nothing
        .iter()
        .copied()
        .chain([&b"some"[..], b"\0\0", b"\0"]);
    arrays.push(Arc::new(BinaryArray::from_iter_values(some)));
    arrays
}

#[test]
fn codes_decode_to_the_strings() {
    let Some(driver) = driver() else { return };
    let device = Arc::new(OnDevice(Engine::new(driver), AtomicUsize::new(0)));
    let mut two_tables = 0;
    for (index, array) in arrays().into_iter().enumerate() {
        for pin in [Encoding::Fsst, Encoding::OnPair] {
            let options = EncodeOptions::pinned(pin);
            let own = encode(&array, &options).unwrap();
            let options = EncodeOptions {
                compressor: Some(device.clone()),
                ..options
            };
            let before = device.1.load(Ordering::Relaxed);
            let actual = encode(&array, &options).unwrap();
            assert!(device.1.load(Ordering::Relaxed) > before, "{index}");
            // a code of `fsst` may stand for bytes of two strings, but not of two lanes
            match pin {
                Encoding::OnPair => assert_eq!(actual, own, "{index}"),
                _ => assert!(actual.len() <= own.len() * 103 / 100 + 200, "{index}"),
            }
            let column = Column::parse(actual.into(), array.data_type(), array.len()).unwrap();
            let all = Selection::all(0, array.len());
            assert_eq!(&column.select(&all).unwrap(), &array, "{index} as {pin}");
            two_tables += usize::from(column.describe().starts_with("fsst(fsst"));
        }
    }
    assert!(two_tables > 0);
}

/// More strings than fit one transfer, and a split that is too long.
#[test]
fn long_strings_go_in_parts() {
    let Some(driver) = driver() else { return };
    let engine = Engine::new(driver);
    let text = "final special requests ".repeat(300);
    let strings: Vec<&[u8]> = (0..1400).map(|row| &text.as_bytes()[row..]).collect();
    let mut words: Vec<Vec<u8>> = (0..=127).map(|byte| vec![byte]).collect();
    words.extend(["final ", "special requests"].map(|word| word.as_bytes().to_vec()));
    let given = Uncompressed {
        strings: &strings,
        split_strings: 32,
        words: &words,
        code_bits: 8,
        escape: None,
    };
    let splits = engine.compress(&given, true).unwrap().splits;
    let mut start = 0;
    for (end, strings) in splits.ends.iter().zip(strings.chunks(32)) {
        let codes = splits.data[start..*end as usize].iter();
        let actual: Vec<&[u8]> = codes.map(|code| &words[usize::from(*code)][..]).collect();
        assert_eq!(actual.concat(), strings.concat());
        start = *end as usize;
    }
    assert_eq!((splits.ends.len(), start), (44, splits.data.len()));

    let text = text.repeat(200);
    let strings = [text.as_bytes()];
    let given = Uncompressed {
        strings: &strings,
        ..given
    };
    let error = engine.compress(&given, true).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
}

/// Two prefixes with the same hash, one of which is not in the table of words; with words in shared memory, and
/// without.
#[test]
fn hashes_are_not_trusted() {
    let Some(device) = device() else { return };
    let other = b"f%\xb1\xf0\0";
    let mut words: Vec<Vec<u8>> = b"final%\xb1\xf0\0".iter().map(|byte| vec![*byte]).collect();
    words.extend([&b"final"[..], b"f%"].map(<[u8]>::to_vec));
    let strings: Vec<&[u8]> = (0..100)
        .map(|row| [&b"final"[..], other][row % 2])
        .collect();
    let given = Uncompressed {
        strings: &strings,
        split_strings: 32,
        words: &words,
        code_bits: 4,
        escape: None,
    };
    let recorder = Recorder::new(CpuDevice::new().unwrap()).with_size(2, 0);
    for driver in [device as Arc<dyn Driver>, Arc::new(recorder)] {
        let splits = Engine::new(driver).compress(&given, true).unwrap().splits;
        // "final", then "f%" and three bytes, twice
        let codes = [0xa9, 0x76, 0x98, 0x6a, 0x87];
        assert_eq!(splits.data, codes.repeat(25));
        assert_eq!(splits.ends, [40, 80, 120, 125]);
    }
}
