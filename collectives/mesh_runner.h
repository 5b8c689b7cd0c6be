// Who runs the mesh (collectives/mesh.h): a thread of its own, or a caller.
//
// To hand a call over to another thread and back costs two wake-ups, which take
// longer than a small call itself. So where all ranks are on this host, a
// caller begins what it calls, and takes the mesh's turns while it waits. The
// thread takes them where no caller does.
//
// Whoever has the turn has it alone. The thread gives it up while it waits for
// sockets and for the mailboxes' news; a caller keeps it while it waits. While
// callers call again and again, the thread leaves the turns to them and waits
// for no news, so that these wake one thread and not two.
#ifndef PSRING_COLLECTIVES_MESH_RUNNER_H_
#define PSRING_COLLECTIVES_MESH_RUNNER_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "collectives/mesh.h"
#include "collectives/tickets.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/net/wake_count.h"

namespace psring {

class MeshRunner {
 public:
  // Both outlive it.
  MeshRunner(Mesh& mesh, Tickets& tickets) : mesh_(mesh), tickets_(tickets) {}

  // The thread: returns when the tickets say stop, at the mesh's end.
  void Run();

  // All below: any thread. After a post. Takes a turn, in which what was posted
  // begins, or where that would take long (`large`), or somebody else has the
  // turn, sees to it that somebody does. Never waits for others.
  void OnPosted(bool large);

  // Takes turns until the handle is done, or until `deadline`. Returns before:
  // where somebody else has the turn, the thread asks for it, or sockets have
  // to be heard.
  void RunFor(int64_t handle, Time deadline);

 private:
  // The thread waits for its turn, which others may have one after the other.
  void TakeOver();
  // A caller does not.
  bool TryTakeOver();
  // The thread waits as the mesh has said, at most until `until`.
  void LetOthersRun(Time until);
  // A caller is done. `stopped`: the tickets say stop.
  void HandBack(bool stopped);
  bool ThreadAsks();
  // It does not leave the turns to callers.
  void CallThread() ABSL_UNLOCK_FUNCTION(mutex_);

  // Of whoever has set taken_:
  Mesh& mesh_;
  AwakeWait awake_;  // how long callers wait awake

  Tickets& tickets_;
  Mutex mutex_;
  // Somebody has the turn.
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
  // When a caller last gave it up.
  Time last_caller_ ABSL_GUARDED_BY(mutex_) = Time::InfinitePast();
  // The thread waits in Wait, and not for its turn.
  bool thread_sleeps_ ABSL_GUARDED_BY(mutex_) = false;
  // When it looks again by itself.
  Time thread_looks_ ABSL_GUARDED_BY(mutex_) = Time::InfinitePast();
  // It is not to wait for callers that may come.
  bool thread_is_needed_ ABSL_GUARDED_BY(mutex_) = false;
  // No caller is to come before it.
  bool thread_asks_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_MESH_RUNNER_H_
