// Measures memory that files are read into and copied from: new or reused, pinned by the driver or registered, copied
// to the device in small or large pieces. docs/lab/README.md has results.
//
//   nvcc -O2 -std=c++17 -o memory benches/gpu/memory.cu -lcuda -lpthread
//   ./memory FILE
//
// FILE should have some gigabytes. At most READ_BYTES of it are read, and once before, so that they are in the page
// cache. Prints the median and the range of ROUNDS measurements. Times of reads and of touching include starting the
// threads. New memory is as the system returns it, in small or in huge pages. The engine pins memory as in
// `crates/gpu/src/runtime/huge.rs`.

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

constexpr size_t KIB = 1 << 10, MIB = 1 << 20;
constexpr size_t READ_BYTES = 4096 * MIB;   // of the file
constexpr size_t PIECE_BYTES = 256 * KIB;   // of a read
constexpr size_t PINNED_BYTES = 256 * MIB;  // as the engine has it
constexpr size_t COPIED_BYTES = 1024 * MIB;
constexpr size_t HUGE_PAGE_BYTES = 2 * MIB;
constexpr size_t TOUCHING_THREADS = 8;
constexpr size_t ROUNDS = 5;

void fail(const std::string& why) {
    fprintf(stderr, "%s\n", why.c_str());
    exit(1);
}

void check(CUresult result, const char* call) {
    const char* name = nullptr;
    if (result == CUDA_SUCCESS) return;
    cuGetErrorName(result, &name);
    fail(std::string(call) + ": " + (name ? name : "unknown error"));
}

template <class Work>
double milliseconds(Work work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Runs `work(0)` to `work(count - 1)` on a thread each.
template <class Work>
void on_threads(size_t count, Work work) {
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < count; thread++) threads.emplace_back(work, thread);
    for (auto& thread : threads) thread.join();
}

// A row of the table: times, or speeds if `bytes` is not 0.
void report(const std::string& name, std::vector<double> values, size_t bytes = 0) {
    for (double& value : values)
        if (bytes) value = (double)bytes / value / 1e6;
    std::sort(values.begin(), values.end());
    printf("| %-70s | %6.1f %s | %.1f to %.1f |\n", name.c_str(), values[values.size() / 2], bytes ? "GB/s" : "ms",
           values.front(), values.back());
    fflush(stdout);
}

char* map(size_t bytes) {
    void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) fail("mmap failed");
    return (char*)address;
}

void read_piece(int file, size_t at, char* to, size_t bytes) {
    while (bytes > 0) {
        const ssize_t done = pread(file, to, bytes, at);
        if (done <= 0) fail("pread failed");
        at += done, to += done, bytes -= done;
    }
}

// Reads the file by pieces on several threads. Per piece, `take(thread, at)` returns memory, which goes back to `give`.
template <class Take, class Give>
void read_all(int file, size_t bytes, size_t threads, Take take, Give give) {
    std::atomic<size_t> next{0};
    on_threads(threads, [&](size_t thread) {
        for (size_t at; (at = next.fetch_add(PIECE_BYTES)) < bytes;) {
            char* memory = take(thread, at);
            read_piece(file, at, memory, std::min(PIECE_BYTES, bytes - at));
            give(memory);
        }
    });
}

void measure_reads(int file, size_t bytes, char* pinned) {
    const size_t cores = std::thread::hardware_concurrency();
    const auto keep = [](char*) {};
    for (size_t threads : {size_t(1), cores}) {
        std::vector<double> reused, kept, passing;
        for (size_t round = 0; round < ROUNDS; round++) {
            const auto own = [&](size_t thread, size_t) { return pinned + thread * PIECE_BYTES; };
            reused.push_back(milliseconds([&] { read_all(file, bytes, threads, own, keep); }));
            char* const all = map(bytes);
            const auto fresh = [&](size_t, size_t at) { return all + at; };
            kept.push_back(milliseconds([&] { read_all(file, bytes, threads, fresh, keep); }));
            munmap(all, bytes);
            const auto one = [](size_t, size_t) { return map(PIECE_BYTES); };
            const auto unmap = [](char* memory) { munmap(memory, PIECE_BYTES); };
            passing.push_back(milliseconds([&] { read_all(file, bytes, threads, one, unmap); }));
        }
        const std::string how = ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
        report("`pread` of 256 KiB into pinned memory that is reused" + how, reused, bytes);
        report("`pread` of 256 KiB into new memory that is kept" + how, kept, bytes);
        report("`pread` of 256 KiB into memory made and given back each time" + how, passing, bytes);
    }
}

void measure_driver() {
    std::vector<double> times;
    for (size_t round = 0; round < ROUNDS; round++) {
        void* memory = nullptr;
        const auto allocate = [&] { return cuMemHostAlloc(&memory, PINNED_BYTES, CU_MEMHOSTALLOC_PORTABLE); };
        times.push_back(milliseconds([&] { check(allocate(), "cuMemHostAlloc"); }));
        check(cuMemFreeHost(memory), "cuMemFreeHost");
    }
    report("`cuMemHostAlloc` of 256 MiB", times);
}

void measure_registered(const char* name, int advice) {
    std::vector<double> touching, registering;
    for (size_t round = 0; round < ROUNDS; round++) {
        char* const memory = (char*)aligned_alloc(HUGE_PAGE_BYTES, PINNED_BYTES);
        if (!memory) fail("aligned_alloc failed");
        madvise(memory, PINNED_BYTES, advice);
        const size_t share = PINNED_BYTES / TOUCHING_THREADS;
        const auto touch = [=](size_t thread) { memset(memory + thread * share, 0, share); };
        touching.push_back(milliseconds([&] { on_threads(TOUCHING_THREADS, touch); }));
        CUresult result;
        const auto pin = [&] { result = cuMemHostRegister(memory, PINNED_BYTES, CU_MEMHOSTREGISTER_PORTABLE); };
        registering.push_back(milliseconds(pin));
        if (result != CUDA_SUCCESS) {
            printf("| %s cannot be registered here (error %d) | | |\n", name, (int)result);
            return free(memory);
        }
        check(cuMemHostUnregister(memory), "cuMemHostUnregister");
        free(memory);
    }
    report(std::string(name) + " of 256 MiB, touched by 8 threads", touching);
    report(std::string(name) + ", then registered", registering);
}

void measure_copies(const char* pinned) {
    CUdeviceptr device;
    check(cuMemAlloc(&device, PINNED_BYTES), "cuMemAlloc");
    std::vector<CUstream> streams(4);
    for (auto& stream : streams) check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    const auto copy_all = [&](size_t piece, size_t used) {
        for (size_t copy = 0; copy < COPIED_BYTES / piece; copy++) {
            const size_t at = copy * piece % PINNED_BYTES;
            check(cuMemcpyHtoDAsync(device + at, pinned + at, piece, streams[copy % used]), "cuMemcpyHtoDAsync");
        }
        for (auto stream : streams) check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    };
    const auto measure = [&](const char* name, size_t piece, size_t used) {
        std::vector<double> times;
        for (size_t round = 0; round < ROUNDS; round++)
            times.push_back(milliseconds([&] { copy_all(piece, used); }));
        report(std::string("copies to the device, ") + name, times, COPIED_BYTES);
    };
    measure("64 KiB each", 64 * KIB, 1);
    measure("64 KiB each, on 4 streams", 64 * KIB, 4);
    measure("256 KiB each", 256 * KIB, 1);
    measure("1 MiB each", MIB, 1);
    measure("8 MiB each", 8 * MIB, 1);
    for (auto stream : streams) check(cuStreamDestroy(stream), "cuStreamDestroy");
    check(cuMemFree(device), "cuMemFree");
}

int main(int count, char** arguments) {
    if (count != 2) fail("usage: memory FILE");
    const int file = open(arguments[1], O_RDONLY);
    struct stat facts;
    if (file < 0 || fstat(file, &facts) != 0) fail("cannot open the file");
    const size_t bytes = std::min((size_t)facts.st_size, READ_BYTES);

    CUdevice device;
    CUcontext context;
    void* pinned = nullptr;
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuMemHostAlloc(&pinned, PINNED_BYTES, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
    const auto first = [&](size_t, size_t) { return (char*)pinned; };
    read_all(file, bytes, 1, first, [](char*) {});

    printf("%.2f GB of the file, %u cores\n\n", (double)bytes / 1e9, std::thread::hardware_concurrency());
    printf("| %-70s | median | range |\n| --- | ---: | --- |\n", "");
    measure_reads(file, bytes, (char*)pinned);
    measure_driver();
    measure_registered("huge pages", MADV_HUGEPAGE);
    measure_registered("small pages", MADV_NOHUGEPAGE);
    measure_copies((char*)pinned);

    check(cuMemFreeHost(pinned), "cuMemFreeHost");
    check(cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
    close(file);
}
