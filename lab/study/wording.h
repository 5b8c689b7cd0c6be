// How sentences of a verdict name and list what they compare. Pure.
#ifndef PSRING_LAB_STUDY_WORDING_H_
#define PSRING_LAB_STUDY_WORDING_H_

#include <string>
#include <vector>

#include "lab/study/comparison.h"
#include "lab/study/contrast.h"

namespace psring {

// "a", "a and b", "a, b and c".
std::string Listing(const std::vector<std::string>& names);

// What tells the variant from the others along the axis.
std::string NameAlong(const Variant& variant, const std::string& axis);

// A sentence of the group's, which begins with no name.
std::string Sentence(const Group& group, const std::string& lower_case);

// "1.20 times as fast", "as fast", "1.03 times as fast (no clear difference)".
std::string Compared(const Ratio& ratio, const char* as);

// Whether the axis has several values, which are not seeds.
bool Varies(const Comparison& comparison, const Axis& axis);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_WORDING_H_
