// Below the kernel, whose name is the macro CUCPU_KERNEL: the one function that the library exports.

namespace cucpu {

// A kernel has one parameter, a struct of 64-bit words.
template <class Args>
int launch(void (*kernel)(Args), const uint64_t* args, size_t words, unsigned grid, unsigned threads,
           size_t shared_bytes, uint64_t seed, void** spare_stacks, char* error, size_t error_bytes) {
    if (sizeof(Args) != 8 * words) {
        snprintf(error, error_bytes, "the kernel takes %zu bytes of arguments, not %zu words", sizeof(Args), words);
        return 1;
    }
    struct Call {
        void (*kernel)(Args);
        const uint64_t* args;
    } call{kernel, args};
    auto entry = [](const void* argument) {
        const Call* call = (const Call*)argument;
        Args args;
        memcpy((void*)&args, call->args, sizeof args);
        call->kernel(args);
    };
    return run_grid(grid, threads, shared_bytes, seed, entry, &call, spare_stacks, error, error_bytes) ? 0 : 1;
}

}  // namespace cucpu

// Returns 0 if the kernel ran to its end, otherwise 1 and a message in `error`. `spare_stacks` is shared by all
// libraries of the process, null at first.
extern "C" __attribute__((visibility("default"))) int cucpu_launch(const uint64_t* args, size_t words, unsigned grid,
                                                                   unsigned threads, size_t shared_bytes,
                                                                   uint64_t seed, void** spare_stacks, char* error,
                                                                   size_t error_bytes) {
    return cucpu::launch(CUCPU_KERNEL, args, words, grid, threads, shared_bytes, seed, spare_stacks, error,
                         error_bytes);
}
