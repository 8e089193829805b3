/* Sleep and wake-up of exec/mt_topo/job.hpp (invariant J2), with the store buffer that a processor has.
 *
 * The announcer stores work, passes light_fence(), and looks whether the caller is parked. The caller
 * says that it is parked, passes heavy_fence(), and looks for work before it sleeps. Locked operations
 * empty the buffer of who executes them; membarrier(2) empties everybody's.
 *
 * Default        no caller sleeps with work there, however late the buffer is emptied
 * -DOWN_FENCE    heavy_fence() is a fence of the caller alone: a wake-up is lost, and spin must find it
 */
bool buffered;  /* The announcer's store of work is in its buffer. */
bool work;      /* ... and in memory. */
bool parked;
byte bell;
bool awake;

active proctype buffer() {
  do
  :: atomic { buffered -> work = true; buffered = false }
  :: atomic { awake && !buffered -> break }
  od
}

active proctype announcer() {
  buffered = true;
  /* light_fence(): nothing but a barrier for the compiler. */
  if
  :: parked ->
    atomic { /* fetch_and, locked. */
      if :: buffered -> work = true; buffered = false :: else fi;
      parked = false
    }
    bell++
  :: else
  fi
}

active proctype caller() {
  byte heard;
  heard = bell;
  parked = true; /* fetch_or, locked: at once in memory. */
#ifndef OWN_FENCE
  atomic { if :: buffered -> work = true; buffered = false :: else fi }
#endif
  if
  :: work
  :: else -> (bell != heard) /* The futex sleeps only while bell == heard. */
  fi;
  awake = true;
  (work)
}
