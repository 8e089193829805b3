/* Why an allocation that waits for Launches must not keep the memory lane (exec/relations.hpp).
 *
 * One worker for the memory lane, one for the launch lane. Lowering has let Free 0 run before the
 * Launches that use its block. Nodes of the memory lane are taken in any order that dependencies allow:
 *
 *   Free 0      frees the block of Launches A and B, which are owed from then on
 *   Alloc 1     takes the block again: all that is owed must be submitted first, but for Launch C,
 *               which needs Alloc 1
 *   Prepare 2   nothing but work of the memory lane that Launch A needs
 *   Launches    A after Prepare 2; B after A; C after Alloc 1; submitted in this order where they can
 *
 * Default        the allocation suspends: every run ends, nothing is reused before A and B are
 *                submitted, and nobody sleeps on
 * -DBLOCKING     it keeps the lane while it waits: it may stand in front of Prepare 2, and spin must
 *                find the deadlock
 * -DALL_OWED     Free 0 owes C, too, and the allocation waits for it, which waits for the allocation:
 *                spin must find the deadlock
 * -DKEPT_EDGES   the proof gate: what could not be proved keeps its edge, so Free 0 runs after A and B;
 *                every run ends, also when the allocation would keep the lane
 */
#define NODES 3
#define FREE 0
#define ALLOC 1
#define PREPARE 2

bool done[NODES];       /* Nodes of the memory lane. */
bool submitted[3];      /* Launches A, B, C. */
bool owed[3];
bool suspended;
bool bell;
bool lane_ended;

#define PAID(l) (!owed[l] || submitted[l])
#ifdef ALL_OWED
#define MET (PAID(0) && PAID(1) && PAID(2))
#else
#define MET (PAID(0) && PAID(1))
#endif

#ifdef KEPT_EDGES
#define FREE_READY (submitted[0] && submitted[1])
#else
#define FREE_READY true
#endif

inline recycle() {
  assert(!owed[0] || submitted[0]);
  assert(!owed[1] || submitted[1]);
  done[ALLOC] = true
}

active proctype memory_lane() {
  do
  :: atomic { !done[FREE] && FREE_READY ->
#ifndef KEPT_EDGES
       owed[0] = !submitted[0]; owed[1] = !submitted[1];
#ifdef ALL_OWED
       owed[2] = true;
#endif
#endif
       done[FREE] = true }
  :: !done[PREPARE] -> done[PREPARE] = true
  :: done[FREE] && !done[ALLOC] && !suspended ->
#ifdef BLOCKING
     (MET);
     recycle()
#else
     if
     :: MET -> recycle()
     :: else ->
       suspended = true;
       /* heavy_fence(), and another look. */
       if :: MET -> suspended = false; recycle() :: else fi
     fi
#endif
  :: suspended && MET -> suspended = false; recycle()
  :: done[FREE] && done[ALLOC] && done[PREPARE] -> break
  /* Nothing can run: sleep until the launch lane rings. */
  :: else -> (bell); bell = false
  od;
  lane_ended = true
}

active proctype launch_lane() {
  (done[PREPARE]);
  submitted[0] = true;
  bell = true;
  submitted[1] = true;
  bell = true;
  (done[ALLOC]);
  submitted[2] = true;
  bell = true;
  (lane_ended)
}
