// What a process does once before it computes on CUDA.

#include <ATen/Context.h>
#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>

#include "text.h"

extern "C" {

// Loads libtorch's CUDA half, which a program that was linked without it has no other way to, and makes f32 arithmetic
// f32 (no TF32) and convolutions the same in every run; with or without cuDNN. `*devices` is the number of devices.
int stoker_cuda_prepare(int cudnn, std::int64_t *devices, char **error) {
  return stoker_guard(error, [=] {
    // Units are of many sizes: without it much of what was freed fits nobody. What the user has set stays.
    setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", 0);
    if (!dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL)) {
      const char *const reason = dlerror();
      throw std::runtime_error(reason ? reason : "libtorch_cuda.so cannot be loaded");
    }
    at::Context &context = at::globalContext();
    context.setAllowTF32CuBLAS(false);
    context.setAllowTF32CuDNN(false);
    context.setUserEnabledCuDNN(cudnn != 0);
    context.setDeterministicCuDNN(true);
    context.setBenchmarkCuDNN(false);
    *devices = at::Context::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
  });
}
}
