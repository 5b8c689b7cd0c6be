#include "worker/batch_loader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

// Samples of one share: enough to be worth a thread's while. One that is
// decoded is enough.
int64_t ShareOf(const Dataset& dataset) {
  return dataset.source == nullptr ? 8 : 1;
}

std::vector<int64_t> ShapeOf(const Dataset& dataset, int64_t count) {
  const ImageShape& shape = dataset.shape;
  return {count, shape.channels, shape.height, shape.width};
}

// By channel, in float32.
at::Tensor ByChannel(const std::vector<double>& values, at::Device device) {
  at::Tensor tensor =
      at::empty({static_cast<int64_t>(values.size()), 1, 1}, at::kFloat);
  for (size_t c = 0; c < values.size(); ++c) {
    tensor.data_ptr<float>()[c] = static_cast<float>(values[c]);
  }
  return tensor.to(device);
}

}  // namespace

BatchLoader::BatchLoader(const Dataset& dataset, const LoaderOptions& options)
    : dataset_(dataset), options_(options) {
  if (options_.normalise_on_device || options_.resident) {
    mean_ = ByChannel(dataset_.mean, options_.device);
    stddev_ = ByChannel(dataset_.stddev, options_.device);
  }
  if (options_.resident) {
    pixels_ = at::from_blob(const_cast<uint8_t*>(dataset_.pixels.data()),
                            ShapeOf(dataset_, dataset_.size()), at::kByte)
                  .to(options_.device);
    labels_ = at::from_blob(const_cast<int64_t*>(dataset_.labels.data()),
                            {dataset_.size()}, at::kLong)
                  .to(options_.device);
    return;
  }
  try {
    for (int i = 0; i < options_.threads; ++i) {
      threads_.emplace_back([this] { Run(); });
    }
  } catch (...) {  // no more threads: those that run would end the program
    Stop();
    throw;
  }
}

BatchLoader::~BatchLoader() { Stop(); }

void BatchLoader::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

std::unique_ptr<BatchLoader::Job> BatchLoader::NewJob(Samples samples) const {
  // Checked here: nobody catches what a thread throws.
  for (const int64_t index : samples.indices) {
    if (index >= 0 && index < dataset_.size()) continue;
    throw std::out_of_range(
        absl::StrCat("sample ", index, " of a dataset of ", dataset_.size()));
  }
  auto job = std::make_unique<Job>();
  job->samples = std::move(samples);
  job->images = OnHost(ShapeOf(dataset_, job->size()),
                       options_.normalise_on_device ? at::kByte : at::kFloat);
  job->labels = OnHost({job->size()}, at::kLong);
  return job;
}

at::Tensor BatchLoader::OnHost(at::IntArrayRef shape,
                               at::ScalarType type) const {
  return at::empty(shape, at::TensorOptions().dtype(type).pinned_memory(
                              !options_.device.is_cpu()));
}

at::Tensor BatchLoader::Moved(const at::Tensor& tensor) const {
  return tensor.to(options_.device, tensor.scalar_type(),
                   /*non_blocking=*/!options_.device.is_cpu());
}

void BatchLoader::Prepare(Samples samples) {
  if (!threads_.empty()) Post(std::move(samples));
}

bool BatchLoader::IsPrepared(const Samples& samples) {
  MutexLock lock(&mutex_);
  return job_ != nullptr && job_->samples == samples;
}

void BatchLoader::Post(Samples samples) {
  std::unique_ptr<Job> job = NewJob(std::move(samples));
  MutexLock lock(&mutex_);
  // One that nobody has fetched may still be worked at.
  mutex_.Await([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return job_ == nullptr || job_->num_done == job_->num_taken;
  });
  job_ = std::move(job);
}

absl::Status BatchLoader::Fill(Job& job, int64_t begin, int64_t end) const {
  const absl::Span<const int64_t> part =
      absl::MakeConstSpan(job.samples.indices).subspan(begin, end - begin);
  const int64_t pixels = dataset_.pixels_per_image();
  const auto size = static_cast<size_t>((end - begin) * pixels);
  dataset_.CopyLabels(part, {job.labels.data_ptr<int64_t>() + begin,
                             static_cast<size_t>(end - begin)});
  if (options_.normalise_on_device) {
    return dataset_.CopyPixels(
        part, job.samples.draw,
        {job.images.data_ptr<uint8_t>() + begin * pixels, size});
  }
  return dataset_.CopyImages(
      part, job.samples.draw,
      {job.images.data_ptr<float>() + begin * pixels, size});
}

bool BatchLoader::Work() {
  Job* job = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  {
    MutexLock lock(&mutex_);
    job = job_.get();
    if (job == nullptr) return false;
    begin = job->num_taken;
    end = std::min(begin + ShareOf(dataset_), job->size());
    if (begin == end) return false;
    job->num_taken = end;
  }
  absl::Status filled;
  try {
    filled = Fill(*job, begin, end);
  } catch (const std::bad_alloc&) {  // which nobody catches on this thread
    filled = absl::ResourceExhaustedError("not enough memory for the samples");
  }
  MutexLock lock(&mutex_);
  job->status.Update(filled);
  job->num_done += end - begin;
  return true;
}

void BatchLoader::Run() {
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (job_ != nullptr && job_->num_taken < job_->size());
  };
  while (true) {
    {
      MutexLock lock(&mutex_);
      mutex_.Await(has_work);
      if (stopping_) return;
    }
    Work();
  }
}

absl::StatusOr<Batch> BatchLoader::Load(const Samples& samples) {
  const c10::NoGradGuard no_grad;
  if (options_.resident) return InFormat(FromResident(samples.indices));
  if (!IsPrepared(samples)) Post(samples);
  while (Work()) {
  }
  std::unique_ptr<Job> job;
  {
    MutexLock lock(&mutex_);
    mutex_.Await([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return job_->num_done == job_->num_taken;
    });
    job = std::move(job_);
  }
  if (!job->status.ok()) return job->status;
  return InFormat(ToDevice(*job));
}

Batch BatchLoader::ToDevice(const Job& job) const {
  const at::Tensor images = Moved(job.images);
  return {options_.normalise_on_device ? Normalised(images) : images,
          Moved(job.labels)};
}

Batch BatchLoader::FromResident(absl::Span<const int64_t> indices) const {
  const at::Tensor on_host =
      OnHost({static_cast<int64_t>(indices.size())}, at::kLong);
  std::copy(indices.begin(), indices.end(), on_host.data_ptr<int64_t>());
  const at::Tensor wanted = Moved(on_host);
  return {Normalised(at::index_select(pixels_, 0, wanted)),
          at::index_select(labels_, 0, wanted)};
}

// Each step rounded to float32, as Dataset::CopyImages does it.
at::Tensor BatchLoader::Normalised(const at::Tensor& pixels) const {
  return pixels.to(at::kFloat).div_(255).sub_(mean_).div_(stddev_);
}

Batch BatchLoader::InFormat(Batch batch) const {
  if (options_.channels_last) {
    batch.images = batch.images.contiguous(at::MemoryFormat::ChannelsLast);
  }
  return batch;
}

}  // namespace psring
