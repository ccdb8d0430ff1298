// Runs CUDA C++ device code on a CPU, one fiber (a thread of our own scheduling) per CUDA thread.
//
// A translation unit is: this file, cuda_builtins.hpp, a kernel as the CUDA compiler takes it, entry.cpp.
// Kernels can test for the macro CUCPU to leave out what only a CUDA compiler knows.
//
// Reported as errors: a lane that is not in its own mask; lanes that disagree on mask or operation; a
// shuffle from a lane that takes no part; deadlock at a barrier or a warp operation. The seed permutes
// the order of threads, so that a missing barrier changes the answer. Shared memory, static and
// dynamic, starts each block as kPoison bytes. Blocks of a grid run one after the other, in order; under
// the seeds that order threads at random, some run at the same time and take turns.
//
// Not seen: races between lanes inside one step; a loop that spins without __nanosleep (it hangs).
//
// Few and light headers: they are compiled again with every kernel.
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <type_traits>

#define CUCPU 1

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define CUCPU_ASAN 1
#endif

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

namespace cucpu {

constexpr unsigned kWarpSize = 32;
constexpr size_t kStackBytes = 256 * 1024;  // of a fiber; only the pages it touches exist
constexpr size_t kGuardBytes = 4096;        // below each stack: an overflow is a fault, not damage
constexpr int kPoison = 0xCD;
constexpr unsigned kBlocksAtATime = 4;      // that take turns
constexpr unsigned kAtomicsToPause = 16;    // a thread of such a block pauses before one in so many

// ---- Fibers: the context switch ----------------------------------------------------------------

// Saves the callee-saved registers on the present stack, stores that stack pointer in *save_sp, then continues on
// load_sp.
extern "C" void cucpu_switch(void** save_sp, void* load_sp);

#if defined(__x86_64__) && defined(__linux__)
asm(R"(
.text
.hidden cucpu_switch
.globl cucpu_switch
.type cucpu_switch,@function
cucpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cucpu_switch,.-cucpu_switch
)");
constexpr int kSavedRegisters = 6;
#else
#error "CUDA threads are switched by assembly that exists for Linux on x86-64 only: add cucpu_switch for this target"
#endif

// ---- State of the running block ----------------------------------------------------------------

// An operation of a warp; lanes that meet must agree on it.
enum class WarpOp {
    syncwarp,
    vote,
    shfl,
    shfl_up,
    shfl_down,
    shfl_xor,
    reduce,
    match,
};

// Where the lanes of one mask meet: open until all have arrived, then complete until all have left.
struct Meeting {
    uint32_t mask = 0;
    uint32_t arrived = 0;  // lanes that have deposited their value
    uint32_t inside = 0;   // of these, the ones that have not left; 0: the object is free
    bool complete = false;
    WarpOp op{};
    uint64_t value[kWarpSize];
};

struct Warp {
    uint32_t exited = 0;         // lanes that have returned from the kernel, or never existed
    Meeting meeting[kWarpSize];  // a lane is in one at most, so there is always a free one
};

struct Fiber {
    void* stack_pointer = nullptr;
    char* stack = nullptr;
    uint3 thread_idx{};
    unsigned linear_id = 0;  // position of the thread in its block
    bool done = false;
    void* asan_fake_stack = nullptr;
};

// Result of a barrier for the threads that pass it.
struct Passed {
    unsigned threads = 0;
    unsigned with_true = 0;  // threads whose predicate was true
};

struct Block {
    dim3 grid_dim, block_dim;
    uint3 block_idx{};
    unsigned threads = 0;
    Fiber* fibers = nullptr;
    Warp* warps = nullptr;
    Fiber* current = nullptr;
    void* scheduler_stack_pointer = nullptr;
    char* dynamic_shared = nullptr;
    size_t dynamic_shared_bytes = 0;

    unsigned alive = 0;     // threads that have not returned
    uint64_t progress = 0;  // moves whenever anything happened; standing still for a pass is a deadlock

    uint64_t barrier_generation = 0;
    Passed barrier_pending;
    Passed barrier_passed[2];  // by generation: a fast thread may reach the next before a slow one leaves this

    void (*entry)(const void*) = nullptr;
    const void* entry_argument = nullptr;

    uint64_t pauses = 0;  // state of the generator that says before which atomics threads pause; 0: none does

    char error[256] = "";  // once there is one, no fiber runs on

    void* scheduler_asan_fake_stack = nullptr;
    const void* scheduler_stack_bottom = nullptr;
    size_t scheduler_stack_size = 0;
};

static thread_local Block* current_block = nullptr;

// ---- Switching between the scheduler and the fibers --------------------------------------------

// Lets the other threads of the block run.
inline void switch_to_scheduler() {
    Block* block = current_block;
    Fiber* fiber = block->current;
#ifdef CUCPU_ASAN
    void** fake_stack = fiber->done ? nullptr : &fiber->asan_fake_stack;
    __sanitizer_start_switch_fiber(fake_stack, block->scheduler_stack_bottom, block->scheduler_stack_size);
#endif
    cucpu_switch(&fiber->stack_pointer, block->scheduler_stack_pointer);
#ifdef CUCPU_ASAN
    __sanitizer_finish_switch_fiber(fiber->asan_fake_stack, &block->scheduler_stack_bottom,
                                    &block->scheduler_stack_size);
#endif
}

// One step of a generator whose state is not 0.
inline uint64_t xorshift(uint64_t& state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

// Lets other blocks run in between.
inline void may_pause() {
    Block* block = current_block;
    if (!block->pauses || xorshift(block->pauses) % kAtomicsToPause) return;
    block->progress++;
    switch_to_scheduler();
}

inline void switch_to_fiber(Fiber& fiber) {
    Block* block = current_block;
    block->current = &fiber;
#ifdef CUCPU_ASAN
    __sanitizer_start_switch_fiber(&block->scheduler_asan_fake_stack, fiber.stack, kStackBytes);
#endif
    cucpu_switch(&block->scheduler_stack_pointer, fiber.stack_pointer);
#ifdef CUCPU_ASAN
    __sanitizer_finish_switch_fiber(block->scheduler_asan_fake_stack, nullptr, nullptr);
#endif
}

// Records an error with its location. Fibers are abandoned: kernels own nothing to clean up.
[[noreturn]] inline void fail(const char* message) {
    Block* block = current_block;
    unsigned thread = block->current->linear_id;
    snprintf(block->error, sizeof block->error, "%s [block %u thread %u lane %u]", message, block->block_idx.x, thread,
             thread % kWarpSize);
    switch_to_scheduler();
    __builtin_unreachable();
}

// First function on every fiber's stack.
inline void fiber_main() {
    Block* block = current_block;
    Fiber* fiber = block->current;
#ifdef CUCPU_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &block->scheduler_stack_bottom, &block->scheduler_stack_size);
#endif
    block->entry(block->entry_argument);
    block->warps[fiber->linear_id / kWarpSize].exited |= 1u << (fiber->linear_id % kWarpSize);
    block->alive--;
    block->progress++;
    fiber->done = true;
    switch_to_scheduler();
    __builtin_unreachable();
}

// ---- Warp collectives and barriers -------------------------------------------------------------

inline uint32_t lane() {
    return current_block->current->linear_id % kWarpSize;
}

// The open meeting of `mask`, or a free one. Fails when the caller cannot meet: a lane that waits for
// the caller elsewhere, while the caller is about to wait for it here, would wait forever.
inline Meeting& find_meeting(Warp& warp, uint32_t mask, uint32_t me, WarpOp op) {
    Meeting* open = nullptr;
    Meeting* free = nullptr;
    for (Meeting& meeting : warp.meeting) {
        if (!meeting.inside) {
            if (!free) free = &meeting;
        } else if (meeting.complete) {
            continue;
        } else if (meeting.mask == mask) {
            open = &meeting;
        } else if ((meeting.mask & me) && (meeting.arrived & mask)) {
            fail("*_sync: lanes that wait for each other disagree on the mask");
        }
    }
    if (open) {
        if (open->op != op) fail("*_sync: lanes of one mask disagree on the operation");
        return *open;
    }
    *free = Meeting{};
    free->mask = mask;
    free->op = op;
    return *free;
}

// Deposits `value`, waits until every lane of `mask` has arrived or exited (exited lanes count as
// arrived), and returns the values of all lanes, to be read before the next switch; `participants`
// says which of them took part.
inline const uint64_t* collective(WarpOp op, uint32_t mask, uint64_t value, uint32_t* participants) {
    Block* block = current_block;
    const unsigned id = block->current->linear_id;
    const uint32_t me = 1u << (id % kWarpSize);
    Warp& warp = block->warps[id / kWarpSize];
    if (!(mask & me)) fail("*_sync: calling lane is not in its own mask");

    Meeting& meeting = find_meeting(warp, mask, me, op);
    meeting.value[id % kWarpSize] = value;
    meeting.arrived |= me;
    meeting.inside |= me;
    block->progress++;
    while (!meeting.complete) {
        if (((meeting.arrived | warp.exited) & mask) == mask) {
            meeting.complete = true;
            break;
        }
        switch_to_scheduler();
    }
    meeting.inside &= ~me;
    *participants = meeting.arrived;
    return meeting.value;
}

// Waits for all living threads of the block.
inline Passed barrier(bool predicate) {
    Block* block = current_block;
    const uint64_t generation = block->barrier_generation;
    Passed& passed = block->barrier_passed[generation & 1];
    block->barrier_pending.threads++;
    block->barrier_pending.with_true += predicate;
    block->progress++;
    while (block->barrier_generation == generation) {
        if (block->barrier_pending.threads == block->alive) {
            passed = block->barrier_pending;
            block->barrier_pending = Passed{};
            block->barrier_generation++;
            break;
        }
        switch_to_scheduler();
    }
    return passed;
}

template <class To, class From>
inline To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

// A value of at most 8 bytes as the payload of a collective, and back.
template <class T>
inline uint64_t to_bits(T value) {
    static_assert(std::is_arithmetic<T>::value && sizeof(T) <= 8, "warp operations carry numbers of at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T>
inline T from_bits(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// ---- Running a grid ----------------------------------------------------------------------------

// The order in which threads run. Seed 0: in order; 1: in reverse; any other: a new random order at
// every pass over the block.
struct Schedule {
    uint64_t seed;
    uint64_t state;

    explicit Schedule(uint64_t seed) : seed(seed), state(seed * 0x9E3779B97F4A7C15ull + 1) {}

    bool is_random() const { return seed > 1; }

    // Less than `count`.
    unsigned below(unsigned count) { return xorshift(state) % count; }

    void start(unsigned* order, unsigned threads) {
        for (unsigned i = 0; i < threads; i++) order[i] = seed == 1 ? threads - 1 - i : i;
    }

    void next_pass(unsigned* order, unsigned threads) {
        if (!is_random()) return;
        for (unsigned i = threads; i > 1; i--) {
            unsigned j = below(i);
            unsigned swapped = order[i - 1];
            order[i - 1] = order[j];
            order[j] = swapped;
        }
    }
};

// Static __shared__ variables are thread_local variables of this library: all of its thread-local memory but
// current_block. Returns its location on this thread.
struct ThreadLocals {
    char* begin = nullptr;
    size_t bytes = 0;
};

inline ThreadLocals thread_locals() {
    struct Search {
        const char* ours;
        ThreadLocals found;
    };
    // Evaluated before the walk: the first use on a thread takes a lock of the loader, which holds it in dlopen while
    // it waits for the end of the walk.
    Search search{(const char*)&current_block, {}};
    dl_iterate_phdr(
        [](dl_phdr_info* library, size_t, void* out) {
            Search& search = *(Search*)out;
            for (int i = 0; i < library->dlpi_phnum; i++) {
                const auto& segment = library->dlpi_phdr[i];
                if (segment.p_type != PT_TLS || !library->dlpi_tls_data) continue;
                char* begin = (char*)library->dlpi_tls_data;
                if (begin <= search.ours && search.ours < begin + segment.p_memsz) {
                    search.found = {begin, segment.p_memsz};
                    return 1;
                }
            }
            return 0;
        },
        &search);
    return search.found;
}

// Puts a fiber at the start of fiber_main on a fresh stack.
inline void prepare_fiber(Fiber& fiber, unsigned id, dim3 block_dim, char* stack) {
    fiber = Fiber{};
    fiber.linear_id = id;
    fiber.thread_idx = {id % block_dim.x, id / block_dim.x % block_dim.y, id / (block_dim.x * block_dim.y)};
    fiber.stack = stack;
    void** sp = (void**)(stack + kStackBytes);
    *--sp = nullptr;  // return address of fiber_main, never used; also keeps the stack aligned
    *--sp = (void*)fiber_main;
    for (int r = 0; r < kSavedRegisters; r++) *--sp = nullptr;
    fiber.stack_pointer = sp;
}

// Abandoned frames keep their red zones, and the next fiber would run into them.
inline void forget_frames(const Fiber& fiber) {
#ifdef CUCPU_ASAN
    __asan_unpoison_memory_region(fiber.stack_pointer, fiber.stack + kStackBytes - (char*)fiber.stack_pointer);
#endif
}

// The stacks of fibers, each above a guard page.
struct Stacks {
    static constexpr size_t kEach = kGuardBytes + kStackBytes;
    const unsigned threads;
    char* memory;  // null: there is none left

    explicit Stacks(unsigned threads) : threads(threads) {
        memory = (char*)mmap(nullptr, kEach * threads, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == (char*)MAP_FAILED) memory = nullptr;
        for (unsigned i = 0; memory && i < threads; i++) mprotect(memory + kEach * i, kGuardBytes, PROT_NONE);
    }

    ~Stacks() {
        if (memory) munmap(memory, kEach * threads);
    }

    char* of(unsigned thread) { return memory + kEach * thread + kGuardBytes; }
};

// Stacks for the time of a launch. Allocating them takes longer than running a small block: those of the last launch
// of any kernel of the process are kept in `spare`. With one set for each kernel, a few hundred kernels would exhaust
// the mappings that a process may have.
struct StacksLease {
    Stacks** const spare;
    Stacks* stacks;

    StacksLease(unsigned threads, Stacks** spare) : spare(spare), stacks(exchange(nullptr)) {
        if (stacks && stacks->memory && stacks->threads >= threads) return;
        delete stacks;
        stacks = new Stacks(threads);
    }

    ~StacksLease() { delete exchange(stacks); }

    Stacks* exchange(Stacks* other) { return __atomic_exchange_n(spare, other, __ATOMIC_ACQ_REL); }
};

template <class T>
struct Array {
    T* data;
    explicit Array(size_t length) : data(new T[length]) {}
    ~Array() { delete[] data; }
};

// Dynamic shared memory: exactly as large as asked for, so that a sanitizer sees an overrun.
struct DynamicShared {
    void* data = nullptr;
    explicit DynamicShared(size_t bytes) {
        if (posix_memalign(&data, 16, bytes)) data = nullptr;
    }
    ~DynamicShared() { free(data); }
};

// A running block, and its own state.
struct Resident {
    Block block;
    const size_t shared_bytes;
    const ThreadLocals locals;
    Array<Fiber> fibers;
    Array<Warp> warps;
    Array<unsigned> order;
    Array<char> away;  // the static shared memory, while another block has its turn
    DynamicShared dynamic_shared;
    unsigned next = 0;      // index in `order` of the thread that runs next
    uint64_t progress = 0;  // of the block when the pass began

    Resident(unsigned grid, unsigned threads, size_t shared_bytes, ThreadLocals locals)
        : shared_bytes(shared_bytes),
          locals(locals),
          fibers(threads),
          warps((threads + kWarpSize - 1) / kWarpSize),
          order(threads),
          away(locals.bytes),
          dynamic_shared(shared_bytes) {
        block.grid_dim = {grid, 1, 1};
        block.block_dim = {threads, 1, 1};
        block.threads = threads;
        block.fibers = fibers.data;
        block.warps = warps.data;
        block.dynamic_shared = (char*)dynamic_shared.data;
        block.dynamic_shared_bytes = shared_bytes;
    }

    // Starts the block with that number, of which no thread has run.
    void start(unsigned number, void (*entry)(const void*), const void* argument, char* stack, Schedule& schedule) {
        const unsigned threads = block.threads;
        block.block_idx = {number, 0, 0};
        block.entry = entry;
        block.entry_argument = argument;
        block.alive = threads;
        block.barrier_pending = Passed{};
        block.pauses = schedule.is_random() ? xorshift(schedule.state) : 0;
        const unsigned count = (threads + kWarpSize - 1) / kWarpSize;
        for (unsigned w = 0; w < count; w++) block.warps[w] = Warp{};
        if (threads % kWarpSize) block.warps[count - 1].exited = ~0u << (threads % kWarpSize);
        memset(away.data, kPoison, locals.bytes);
        memset(block.dynamic_shared, kPoison, shared_bytes);
        for (unsigned i = 0; i < threads; i++) {
            prepare_fiber(block.fibers[i], i, block.block_dim, stack + Stacks::kEach * i);
        }
        schedule.start(order.data, threads);
        next = 0;
    }

    // Runs so many threads to where they meet others, pause or end, or fewer if all have run in this pass. Returns
    // false on an error.
    bool turn(unsigned turns, Schedule& schedule) {
        if (locals.begin) memcpy(locals.begin, away.data, locals.bytes);
        current_block = &block;
        const bool ok = run(turns, schedule);
        if (locals.begin) memcpy(away.data, locals.begin, locals.bytes);
        return ok;
    }

    bool run(unsigned turns, Schedule& schedule) {
        if (next == 0) {
            progress = block.progress;
            schedule.next_pass(order.data, block.threads);
        }
        for (; turns && next < block.threads; turns--, next++) {
            Fiber& fiber = block.fibers[order.data[next]];
            if (!fiber.done) switch_to_fiber(fiber);
            if (block.error[0]) return false;
        }
        if (next < block.threads) return true;
        next = 0;
        if (block.alive && block.progress == progress) {
            unsigned at_barrier = block.barrier_pending.threads;
            snprintf(block.error, sizeof block.error,
                     "deadlock: %u threads wait, %u at __syncthreads and %u at warp operations, in block %u",
                     block.alive, at_barrier, block.alive - at_barrier, block.block_idx.x);
            return false;
        }
        return true;
    }

    void end() {
        for (unsigned i = 0; i < block.threads; i++) forget_frames(block.fibers[i]);
    }
};

struct Residents {
    Resident* at[kBlocksAtATime] = {};
    ~Residents() {
        for (Resident* resident : at) delete resident;
    }
};

// Runs a grid in x. Returns false with a message in `error` if it fails.
inline bool run_grid(unsigned grid, unsigned threads, size_t shared_bytes, uint64_t seed, void (*entry)(const void*),
                     const void* argument, void** spare_stacks, char* error, size_t error_bytes) {
    Schedule schedule(seed);
    const unsigned most = schedule.is_random() ? kBlocksAtATime : 1;
    unsigned running = grid < most ? grid : most;
    StacksLease lease(threads * running, (Stacks**)spare_stacks);
    Stacks& stacks = *lease.stacks;
    const ThreadLocals locals = thread_locals();
    Residents residents;
    for (unsigned slot = 0; slot < running; slot++) {
        residents.at[slot] = new Resident(grid, threads, shared_bytes, locals);
        if (!stacks.memory || !residents.at[slot]->dynamic_shared.data) {
            snprintf(error, error_bytes, "no memory for the stacks of %u threads or %zu bytes of shared memory",
                     threads * running, shared_bytes);
            return false;
        }
    }
    char* stack_of[kBlocksAtATime];
    unsigned next = 0;
    auto start = [&](unsigned slot) {
        residents.at[slot]->start(next++, entry, argument, stack_of[slot], schedule);
    };
    for (unsigned slot = 0; slot < running; slot++) {
        stack_of[slot] = stacks.of(threads * slot);
        start(slot);
    }
    bool ok = true;
    while (running && ok) {
        const unsigned slot = running > 1 ? schedule.below(running) : 0;
        Resident& resident = *residents.at[slot];
        ok = resident.turn(running > 1 ? 1 + schedule.below(threads) : threads, schedule);
        if (!ok) snprintf(error, error_bytes, "%s", resident.block.error);
        if (resident.block.alive) continue;
        resident.end();
        if (next < grid) {
            start(slot);
        } else {  // the last one moves to the free slot
            running--;
            Resident* gone = residents.at[slot];
            residents.at[slot] = residents.at[running];
            residents.at[running] = gone;
            stack_of[slot] = stack_of[running];
        }
    }
    for (unsigned slot = 0; slot < running; slot++) residents.at[slot]->end();
    current_block = nullptr;
    return ok;
}

}  // namespace cucpu
