//! Programs of the interpreter: the instructions, and the layout of its arguments.
//!
//! A program has two kinds of instructions. Those of *vectors* work on masks of the 1024 rows of a vector, a word of
//! 32 rows for each lane. [`VectorOp::Loop`] and [`VectorOp::Where`] are followed by a body of instructions of *rows*,
//! which run for a few selected rows of each lane at a time: a batch.
//!
//! Instructions of rows are those of a machine with one accumulator, `x`, of 64 bits a row, and one for booleans, `t`.
//! In a *wide* program `x` has 128 bits, a batch is one row of each lane, and an operand [`Operand::Argument`] takes two
//! words. All other words are those of 64 bits.
//! Both share a validity flag. Operands and results that are needed later lie in *slots*. Masks, and booleans that are
//! needed later, are *flags*.

use crate::device::{device_constants, device_enum};

/// An instruction: its operator, and four operands whose meaning depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// A [`VectorOp`] or a [`RowOp`].
    pub op: u8,
    /// A column, a kind, or an [`Operand`].
    pub a: u8,
    /// The other operands: indices of arguments, slots, flags, instructions.
    pub rest: [u16; 3],
}

impl Instruction {
    /// The word that the interpreter reads.
    pub fn word(self) -> u64 {
        let [b, c, d] = self.rest.map(u64::from);
        u64::from(self.op) | u64::from(self.a) << 8 | b << 16 | c << 32 | d << 48
    }
}

device_constants! {
    /// Sizes that host and interpreter agree on.
    PROGRAM_SIZES {
        /// An operand that is absent.
        pub NONE: u16 = 0xffff,
        /// Words of the interpreter's arguments, the program among them: 8 KB. Drivers that Vectile supports take up to
        /// 32,764 bytes, but each launch copies all of them.
        pub PROGRAM_WORDS: usize = 1024,
        /// Rows of a lane in a batch of all rows.
        pub DENSE_ROWS: u32 = 8,
        /// Most selected rows of a vector that are picked one by one.
        pub PICKED_ROWS: u32 = 128,
        /// Bytes of the list of picked rows.
        pub LIST_BYTES: u32 = 256,
        /// Most columns at a time: a lane has the record of one.
        pub MOST_COLUMNS: usize = 32,
        /// Vectors of a slot, which are summed by themselves.
        pub SLOT_VECTORS: usize = 32,
    }
}

device_enum! {
    /// Words of arguments with a fixed meaning. Six come before them, as for every kernel.
    pub enum ProgramWord {
        /// Bytes of the block's own shared memory.
        BlockBytes = W_BLOCK_BYTES,
        /// Offset of the group table in them.
        TableAt = W_TABLE_AT,
        /// Possible groups; entries of a hash table.
        Groups = W_GROUPS,
        /// Entries of the group table in global memory.
        Entries = W_ENTRIES,
        /// Address of global memory, of which each warp has as many bytes as below.
        Scratch = W_SCRATCH,
        /// Address of a word that is set if a number does not fit 64 bits.
        Overflow = W_OVERFLOW,
        /// Bytes of scratch memory for a warp.
        ScratchBytes = W_SCRATCH_BYTES,
        /// Bytes of shared memory of a warp; above, the offset of its tile.
        WarpBytes = W_WARP_BYTES,
        /// Offset of the accumulators of threads in it; above, that of flags.
        KeptAt = W_KEPT_AT,
        /// Offset of slots in it; above, 1 if the program is wide.
        SlotsAt = W_SLOTS_AT,
        /// Number of columns at first; above, words of a row group's descriptor.
        Columns = W_COLUMNS,
        /// The argument that describes the first of them, as [`VectorOp::Columns`] says; above, that of the program.
        Code = W_CODE,
        /// The first accumulator's argument; above, their number.
        Accumulators = W_ACCUMULATORS,
        /// The first argument of copies of bits; above, their number.
        Copies = W_COPIES,
        /// The scope of accumulators, a [`Scope`]; above, warps of a block.
        Scope = W_SCOPE,
        /// Where groups are, a [`Grouped`]; above, groups of threads, and words of each.
        Grouped = W_GROUPED,
    }
}

device_enum! {
    /// What has accumulators of its own.
    pub enum Scope {
        /// A warp.
        Warp = OF_WARP,
        /// A block.
        Block = OF_BLOCK,
        /// Some vectors of a row group.
        Slot = OF_SLOT,
    }
}

device_enum! {
    /// Where accumulators are.
    pub enum Grouped {
        /// There are none, or they are in global memory.
        Elsewhere = ELSEWHERE,
        /// Each thread has its own.
        Threads = BY_THREAD,
        /// Each block has a table of its own.
        Block = BY_BLOCK,
        /// Each thread has its own, of all rows.
        Not = NOT_GROUPED,
    }
}

device_enum! {
    /// Kinds of accumulators.
    pub enum AccumulatorKind {
        /// A count of 32 bits in shared memory.
        Count = A_COUNT,
        /// A sum of integers of 64 bits.
        Sum = A_SUM,
        /// The same, of 128 bits.
        WideSum = A_WIDE_SUM,
        /// A sum of doubles.
        FloatSum = A_FLOAT_SUM,
        /// The smallest.
        Min = A_MIN,
        /// The largest.
        Max = A_MAX,
        /// The smallest of integers of 128 bits; only in wide programs.
        WideMin = A_WIDE_MIN,
        /// The largest of them.
        WideMax = A_WIDE_MAX,
        /// The largest, as an unsigned number; 0 at first.
        Raise = A_RAISE,
        /// A sum in some bits of a word.
        Field = A_FIELD,
        /// A part of the group's key.
        KeyPart = A_KEY_PART,
    }
}

device_enum! {
    /// Instructions of vectors. The mask `t` is their result.
    pub enum VectorOp {
        /// Ends the vector.
        End = V_END,
        /// All rows.
        All = V_ALL,
        /// No row.
        Nothing = V_NOTHING,
        /// Rows in which column `a` is not null.
        Valid = V_VALID,
        /// The other rows.
        Not = V_NOT,
        /// Keeps `t` as flag `b`.
        Keep = V_KEEP,
        /// Those in flag `b` as well.
        And = V_AND,
        /// Those in flag `b`, too.
        Or = V_OR,
        /// Rows whose value of column `a` lies between arguments `b` and `b + 1`; `b + 2` is a table by scale. Of
        /// dictionaries, and of text, the test `c` has the answer. `d` has [`TEST_BITS`] if that is in bits, and
        /// [`TEST_WIDE`] if values may not fit 64 bits: then arguments `b + 2` and `b + 3` are the upper halves.
        Range = V_RANGE,
        /// Rows whose column `a` has a key in table `b`; `c` is the argument of the offset of a copy of its bits. `d`
        /// is 1 for a hash table.
        Found = V_FOUND,
        /// Runs the instructions of rows up to `b`, for selected rows, which are the result of [`RowOp::Mask`].
        Where = V_WHERE,
        /// Drops the rows that are not in `t`.
        Filter = V_FILTER,
        /// Takes up `a` columns, which instructions from here on number from 0: arguments from `b` on describe them. The
        /// upper half of such a word is the column's number in descriptors of row groups; its lower half has from bit 8
        /// on the [`ValueType`], from 16 on a number among those that are decoded, from 24 on whether entries may have
        /// more than 32 bits.
        Columns = V_COLUMNS,
        /// Has the words of column `a` fetched.
        Fetch = V_FETCH,
        /// Makes column `a` readable row by row; if `b` is 1 and few rows are left, only those that are picked.
        Decode = V_DECODE,
        /// Runs the instructions of rows up to `b`; few rows are picked if `a` is 1.
        Loop = V_LOOP,
        /// Adds the selected rows, of flag `c` if there is one, to accumulator `b`.
        Count = V_COUNT,
        /// Writes the selection.
        Masks = V_MASKS,
        /// Reads the selection, and where selected rows go.
        Selected = V_SELECTED,
        /// Rows go to places as they come.
        Every = V_EVERY,
        /// Writes lengths or codes of column `a`; and validity if `d` is 1.
        Lengths = V_LENGTHS,
    }
}

device_enum! {
    /// The operand `y` of an instruction of rows.
    pub enum Operand {
        /// Column `b`, whose validity is flag `c`.
        Column = FROM_COLUMN,
        /// Argument `b`; in wide programs `b + 1` is its upper half.
        Argument = FROM_ARGUMENT,
        /// Slot `b`, whose validity is flag `c`.
        Slot = FROM_SLOT,
        /// What tables are looked up by: values of column `b`, or codes of its dictionaries.
        Keys = FROM_KEYS,
    }
}

device_enum! {
    /// Instructions of rows.
    pub enum RowOp {
        /// `x = y`.
        Set = R_SET,
        /// `x += y`.
        Add = R_ADD,
        /// `x -= y`.
        Subtract = R_SUBTRACT,
        /// `x *= y`.
        Multiply = R_MULTIPLY,
        /// `x /= y`.
        Divide = R_DIVIDE,
        /// `x %= y`.
        Remainder = R_REMAINDER,
        /// Arithmetic `d` on floats, of single precision from 8 on.
        Float = R_FLOAT,
        /// `t = x ? y`, by comparison `d`; of doubles from 8, of floats from 16 on.
        Compare = R_COMPARE,
        /// A sum `x` by a count `y`.
        Average = R_AVERAGE,
        /// Wraps `x` to type `a`.
        Wrap = R_WRAP,
        /// The other sign: of doubles, or of floats if `a` is 1.
        Negate = R_NEGATE,
        /// Null.
        Null = R_NULL,
        /// `t` is constant `a`.
        Constant = R_CONSTANT,
        /// `t = t AND` flag `b`, whose validity is flag `c`.
        And = R_AND,
        /// `t = t OR` flag `b`, whose validity is flag `c`.
        Or = R_OR,
        /// `t = NOT t`.
        Not = R_NOT,
        /// `t = x IS NULL`, or `t IS NULL`.
        IsNull = R_IS_NULL,
        /// `t = x <> 0`.
        Truth = R_TRUTH,
        /// `x` is 1 for true.
        Number = R_NUMBER,
        /// Slot `b` = `x`, flag `c` = its validity.
        Save = R_SAVE,
        /// Flag `b` = `t`, flag `c` = its validity.
        SaveTruth = R_SAVE_TRUTH,
        /// `t` = flag `b`, with validity flag `c`.
        LoadTruth = R_LOAD_TRUTH,
        /// `t` = mask `b` of the vector, with validity mask `c`.
        LoadMask = R_LOAD_MASK,
        /// Flag `b` = `t` and valid.
        SaveTrue = R_SAVE_TRUE,
        /// `x` where flag `d`, else slot `b` with validity flag `c`.
        Choose = R_CHOOSE,
        /// `t` where flag `d`, else flag `b` with validity flag `c`.
        ChooseTruth = R_CHOOSE_TRUTH,
        /// Converts by [`Conversion`] `a`.
        Convert = R_CONVERT,
        /// `x` by argument `b`, rounded down.
        FloorDivide = R_FLOOR_DIVIDE,
        /// Part `a` of a date or time; null beyond arguments `b` and `b + 1`.
        DatePart = R_DATE_PART,
        /// The code of key `x`, of column `a`, in the table whose words in the row group's descriptor begin at `b`. If `a`
        /// is [`COMPUTED`], arguments from `b` on are those words. `d` is the number of bytes of a code, and
        /// [`FIND_HASHED`].
        Find = R_FIND,
        /// The payload of code `x`: argument `b`, of type `a`, whose validity is argument `c`.
        Payload = R_PAYLOAD,
        /// Drops rows for which `t` is not true.
        Filter = R_FILTER,
        /// Drops rows for which `x` is null.
        Drop = R_DROP,
        /// Where `t` is true is the result of the loop.
        Mask = R_MASK,
        /// `x` is 0 where null or dropped.
        OrZero = R_OR_ZERO,
        /// `x` is 1 where it is 0 and the row is not dropped.
        OrOne = R_OR_ONE,
        /// Repeats the instructions up to `d` while the count of rounds, in flags `c + 1` and `c + 2`, is less than slot
        /// `b`; flag `c` has the rows. If `a` is 1, a lane's rows take turns in order, each with all of its rounds, and
        /// flag `c + 3` has those that are left.
        Begin = R_BEGIN,
        /// Ends the repetition that begins at `b`.
        Again = R_AGAIN,
        /// `x` = the count of rounds in flags `b` and `b + 1`.
        Round = R_ROUND,
        /// Rows for which `t` is true are done: flag `b` has them. They are not repeated for flag `c`.
        Some = R_SOME,
        /// `t` = flag `b`, whose rows count again.
        Join = R_JOIN,
        /// The digit of key `x`, less argument `b`; of null, argument `c`.
        Digit = R_DIGIT,
        /// Drops rows whose group `x` is none of the possible ones.
        Check = R_CHECK,
        /// The hash of `x` and of the hash in slot `b`, if there is one; as a group number if `a` is 1.
        Hash = R_HASH,
        /// Adds `x` to a set of values of groups, whose number is in slot `c`, and counts those that are new in word `d`.
        /// Arguments from `b` on are the set's address, its entries, its stride, a word, and the slot of the group's entry in
        /// the table. The word has from bit 0 on the number of parts of keys, from 2 on the number of the set, at 8 whether the
        /// table is in shared memory, and from 16 on the slots of the parts, 16 bits each.
        Distinct = R_DISTINCT,
        /// The entry of group `x` in the hash table.
        Entry = R_ENTRY,
        /// Floats as integers of the same order: doubles, or floats if `a` is 1.
        Order = R_ORDER,
        /// Integers so that the largest unsigned number stands for the largest, or if `a` is 1 for the smallest.
        Rank = R_RANK,
        /// Adds to accumulator `d`, of kind `a`, of the table's entry in slot `b`; `c` is 1 in shared memory.
        AddToTable = R_ADD_TO_TABLE,
        /// Where the thread has the words of group `x`; of one that is none of the possible ones, those of a spare group.
        Kept = R_KEPT,
        /// Adds to the words from `c` on of the thread's words in slot `b`, of kind `a`, from bit `d` on.
        AddToThread = R_ADD_TO_THREAD,
        /// Adds to the words from `c` on of the thread, of kind `a`.
        AddToTotal = R_ADD_TO_TOTAL,
        /// Where rows go.
        Place = R_PLACE,
        /// Writes `x`, of type `a`, to output `b` at the place in slot `c`.
        Write = R_WRITE,
        /// Writes whether `x` is valid, likewise.
        WriteValid = R_WRITE_VALID,
    }
}

device_enum! {
    /// Conversions of `x`.
    pub enum Conversion {
        /// An integer to a double.
        ToDouble = TO_DOUBLE,
        /// An integer to a float.
        ToFloat = TO_FLOAT,
        /// A float to a double.
        Widen = WIDEN,
        /// A double to a float.
        Narrow = NARROW,
        /// A double to the nearest integer.
        Round = ROUND,
    }
}

device_enum! {
    /// Machine types of values.
    pub enum ValueType {
        /// A byte, 0 or 1.
        Bool = T_BOOL,
        /// Signed.
        I8 = T_I8,
        /// Signed.
        I16 = T_I16,
        /// Signed.
        I32 = T_I32,
        /// Signed.
        I64 = T_I64,
        /// Unsigned.
        U8 = T_U8,
        /// Unsigned.
        U16 = T_U16,
        /// Unsigned.
        U32 = T_U32,
        /// Unsigned.
        U64 = T_U64,
        /// Signed, of values that fit 64 bits.
        I128 = T_I128,
        /// Single precision.
        F32 = T_F32,
        /// Double precision.
        F64 = T_F64,
        /// None: text.
        Text = T_TEXT,
    }
}

device_constants! {
    /// Flags of operands.
    FIND_FLAGS {
        /// The table is a hash table.
        pub FIND_HASHED: u16 = 16,
        /// In place of a column: the key is computed.
        pub COMPUTED: u8 = 255,
        /// The answer of a [`VectorOp::Range`] to codes is in bits.
        pub TEST_BITS: u16 = 1,
        /// Its values may not fit 64 bits.
        pub TEST_WIDE: u16 = 2,
        /// Beside an [`AccumulatorKind`]: 1 is added, and not a value.
        pub ONE: u8 = 16,
        /// Beside an [`Operand`]: the result may not fit 64 bits.
        pub CHECKED: u8 = 64,
    }
}
