// A job as somebody else describes it.
#ifndef PSRING_COMMON_PAGE_CLEAN_VIEW_H_
#define PSRING_COMMON_PAGE_CLEAN_VIEW_H_

#include "protos/cluster.pb.h"

namespace psring {

// Of a view no more than a correct coordinator tells: texts of a line or two,
// numbers that can be counted with, and the first processes of very many.
proto::JobView CleanView(proto::JobView view);

}  // namespace psring

#endif  // PSRING_COMMON_PAGE_CLEAN_VIEW_H_
