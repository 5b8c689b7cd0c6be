// Reductions of any type of element, in the order in which they are given.
#ifndef PSRING_COLLECTIVES_REDUCTION_H_
#define PSRING_COLLECTIVES_REDUCTION_H_

#include <cstdint>

#include "absl/types/span.h"
#include "collectives/dtype.h"

namespace psring {

// How elements become one.
struct Arithmetic {
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kSum;
  // Factors of every input and of the result; integers have none but 1.
  double prescale = 1;
  double postscale = 1;
};

// out[i] = postscale * (prescale * inputs[0][i] + prescale * inputs[1][i] ...),
// with the reduction's operation in place of +; an average is a sum whose
// postscale is divided by the number of inputs. Nothing needs alignment; `out`
// may be any input. From left to right, whatever the machine:
//   - float64 in float64, other floats in float32; 16-bit ones are rounded
//     once, at the end, to the nearest, ties to even;
//   - integers modulo 2^bits;
//   - bools: a sum and a maximum are "or", a product and a minimum "and";
//   - minimum and maximum are NaN where any input is.
void Reduce(const Arithmetic& how, absl::Span<const void* const> inputs,
            int64_t num_elements, void* out);

}  // namespace psring

#endif  // PSRING_COLLECTIVES_REDUCTION_H_
