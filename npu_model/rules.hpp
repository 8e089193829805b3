// rules.hpp: the ordering rules of the device, and a switch that breaks one of them. Only tests use
// the switch: they show that each rule has a test that notices when it does not hold.
//
// Threads  break_rule() holds for the NPUs that the calling thread creates afterwards.
// Memory   None.
#pragma once

#include <cstdint>

namespace davit::npu {

// The comment is what the device does when the rule is broken.
enum class Rule : uint8_t {
  kNone,
  kStreamIsFifo,             // Two queued tasks of a stream change places.
  kStreamsAreIndependent,    // One task at a time on the whole device.
  kPriorityOrdersStart,      // Priorities are ignored.
  kPriorityDoesNotPreempt,   // Urgent tasks take the cores of running ones.
  kFullQueueHoldsHost,       // Queues have no limit.
  kStopSkipsRest,            // Streams always continue on failure.
  kContinueRunsRest,         // Streams always stop on failure.
  kCallbackIsInOrder,        // Callbacks are called at submission.
  kCallbackHoldsStream,      // The next task does not wait for the callback.
  kRecordCapturesPriorWork,  // Records are reached at submission.
  kWaitTakesLatestRecord,    // A wait follows later re-records.
  kRecordReleasesAll,        // A record releases one waiting stream.
  kReachedEventAddsNoTask,   // Every wait is a task.
  kUnrecordedIsComplete,     // A query of an event that was never recorded says no.
  kNotifyReleasesOne,        // A notify releases all waiting streams.
  kNotifyResets,             // A notify stays set.
  kNotifyCrossesDevices,     // Records for a notify of another device arrive at submission.
  kEventIdIsHeld,            // The id of a destroyed event is free while tasks still use it.
  kWokenLooksAgain,          // A wait that is woken for no reason goes on.
  kStartsOnAnyCore,          // Kernels wait for all of their cores.
  kAllCoresWaits,            // Launches that ask for all cores start on any.
  kMixNeedsVectorCores,      // Mixed kernels start without a vector core.
  kMixNeedsBothVectorCores,  // Mixed kernels start with one vector core.
  kBoundTasksStay,           // Tasks of bound streams run at submission.
  kOnlyHeadsStart,           // All streams of a model start.
  kExecutionEndsWithGraph,   // MODEL_EXECUTE ends when the heads have started.
  kProgramIsReused,          // A second execution finds no tasks.
  kLongProgramsChain,        // A bound stream holds no more than one queue on the device does.
  kActiveRunsBeside,         // STREAM_ACTIVE stops the present stream.
  kTargetIsOfModel,          // STREAM_ACTIVE accepts every stream that is bound.
  kSwitchStopsStream,        // After STREAM_SWITCH, the present stream goes on.
  kFalseFallsThrough,        // STREAM_SWITCH always switches.
  kIndexIsClamped,           // LABEL_SWITCH takes the index modulo the labels.
  kJumpStopsStream,          // After a jump to another stream, the present one goes on.
  kPendingFreesAicpu,        // Pending queue tasks keep their AICPU.
  kItemWakesPending,         // Pending queue tasks are not told of new items.
  kCopiesHaveOwnEngines,     // All copies share one engine.
  kAicpuHasCache,            // AICPUs see at once what copies from the host write.
  kCount,
};

void break_rule(Rule rule);
Rule broken_rule();

}  // namespace davit::npu
