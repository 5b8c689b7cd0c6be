#include "lab/host/job_key.h"

#include "absl/strings/str_cat.h"

namespace psring {

absl::StatusOr<JobKey> JobKey::Create(const Security& security) {
  JobKey key(security);
  if (!security.secret.has_value() || !security.file.empty()) return key;
  auto descriptor = KeyDescriptor::Create(*security.secret);
  if (!descriptor.ok()) return descriptor.status();
  key.key_ = *std::move(descriptor);
  return key;
}

void JobKey::GiveTo(Command& command) const {
  if (!security_.secret.has_value() && !security_.insecure) return;
  command.variables["PSRING_KEY_FILE"] = security_.file;
  command.variables["PSRING_INSECURE"] = security_.insecure ? "1" : "";
  command.variables["PSRING_REQUIRE_ENCRYPTION"] =
      security_.require_encryption ? "1" : "";
  command.variables["PSRING_KEY_FD"] = "";
  if (!key_.has_value()) return;
  command.variables["PSRING_KEY_FD"] = absl::StrCat(key_->fd());
  command.inherited_fd = key_->fd();
}

}  // namespace psring
