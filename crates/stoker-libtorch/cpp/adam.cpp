// at::_fused_adam_ and at::_fused_adamw_, which tch does not bind (they return nothing).

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include "text.h"

extern "C" {

// One update, the `step`th from 1, of f32 tensors of one shape. `numbers` is learning rate, beta1, beta2, weight decay and
// eps. The gradient is left as it is.
int stoker_adam(const at::Tensor *parameters, const at::Tensor *gradient, const at::Tensor *first, const at::Tensor *second,
                int decoupled, double step, const double *numbers, char **error) {
  return stoker_guard(error, [=] {
    const c10::AutoGradMode without_graph(false);
    const at::Tensor steps = at::full({}, step, parameters->options());
    const auto one = [](const at::Tensor *tensor) { return at::TensorList(tensor, 1); };
    const auto by = [&](const auto &rule) {
      rule(one(parameters), one(gradient), one(first), one(second), /*max_exp_avg_sqs=*/at::TensorList(), one(&steps),
           numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], /*amsgrad=*/false, /*maximize=*/false);
    };
    if (decoupled) {
      by([](const auto &...of) { at::_fused_adamw_(of...); });
    } else {
      by([](const auto &...of) { at::_fused_adam_(of...); });
    }
  });
}
}
