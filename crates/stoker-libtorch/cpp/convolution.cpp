// at::convolution_backward, which tch does not bind (its argument bool[3]).

#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/core/GradMode.h>

#include "text.h"

extern "C" {

// The gradient of operand `which` (0 input, 1 weight) into `*out`, a new tensor that the caller owns. `geometry`
// is stride, padding and dilation, two numbers each.
int stoker_convolution_backward(const at::Tensor *gradient, const at::Tensor *input, const at::Tensor *weight,
                                const std::int64_t *geometry, std::int64_t groups, int which, at::Tensor **out,
                                char **error) {
  return stoker_guard(error, [=] {
    const c10::AutoGradMode without_graph(false);
    const auto pair = [geometry](int at) { return at::IntArrayRef(geometry + 2 * at, 2); };
    const std::int64_t bias[] = {weight->size(0)};
    const std::int64_t output_padding[] = {0, 0};
    auto found = at::convolution_backward(*gradient, *input, *weight, at::IntArrayRef(bias, 1), pair(0), pair(1), pair(2),
                                          /*transposed=*/false, at::IntArrayRef(output_padding, 2), groups,
                                          {which == 0, which == 1, false});
    at::Tensor &wanted = which == 0 ? std::get<0>(found) : std::get<1>(found);
    *out = new at::Tensor(std::move(wanted));
  });
}

void stoker_text_free(char *text) { std::free(text); }
}
