// A folder of pictures, sorted into folders by class: ImageNet's form, which
// torchvision's ImageFolder reads too.
#ifndef PSRING_WORKER_DATA_IMAGE_FOLDER_H_
#define PSRING_WORKER_DATA_IMAGE_FOLDER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/dataset.h"

namespace psring {

struct ImageFolderOptions {
  std::string folder;
  int side = 224;       // pixels, of the square that a model gets
  bool augment = true;  // of training images: RandomCrop, else CentralCrop
};

// "DIR[,size=PIXELS][,augment=no]"; DIR may have commas. INVALID_ARGUMENT names
// the part at fault.
absl::StatusOr<ImageFolderOptions> ParseImageFolderOptions(
    absl::string_view text);

// Lists train/CLASS/ and val/CLASS/ (where there is none, test/CLASS/) in the
// folder, to any depth, in the order of names; classes are numbered in that
// order. Pictures are files whose names end in .jpg, .jpeg or .png, in any
// case; other and hidden ones are not seen, and links to folders not followed.
// They are read when they are asked for. Errors: NOT_FOUND for a folder;
// INVALID_ARGUMENT for a class without pictures, fewer than two classes, or a
// class that only one of the two parts has. Blocks on the disk.
absl::StatusOr<DatasetPair> LoadImageFolder(const ImageFolderOptions& options);

}  // namespace psring

#endif  // PSRING_WORKER_DATA_IMAGE_FOLDER_H_
