/* The memory lane of exec/mt_topo/strand.hpp: three workers bring two, one and one units.
 *
 * Default         one holder at a time, every unit is run once, and the strand ends idle
 * -DPLAIN_LEAVE   leave() stores kIdle without looking: a unit is lost, and spin must find it
 */
#define WORKERS 3
#define UNITS 4
#define IDLE 254
#define HELD 253
#define END 255

byte word = IDLE;
byte next[UNITS];
byte ran[UNITS];
byte holders;
byte finished;

inline execute(unit) {
  holders++;
  assert(holders == 1);
  ran[unit]++;
  holders--
}

proctype worker(byte first; byte end) {
  byte unit = first;
  byte seen, oldest, newer;
  bool mine;
  do
  :: unit == end -> break
  :: else ->
    /* enter() */
    seen = word;
    do
    :: seen == IDLE ->
      atomic { if :: word == IDLE -> word = HELD; mine = true :: else -> seen = word; mine = false fi }
      if :: mine -> break :: else fi
    :: else ->
      next[unit] = (seen == HELD -> END : seen);
      atomic { if :: word == seen -> word = unit; mine = false; seen = END :: else -> seen = word; mine = true fi }
      if :: seen == END && !mine -> break :: else fi
    od;
    if
    :: mine ->
      execute(unit);
      do
      ::
#ifdef PLAIN_LEAVE
        word = IDLE; break
#else
        atomic { if :: word == HELD -> word = IDLE; mine = false :: else -> seen = word; word = HELD fi }
        if
        :: !mine -> break
        :: else ->
          oldest = END;
          do
          :: seen == END -> break
          :: else -> newer = seen; seen = next[newer]; next[newer] = oldest; oldest = newer
          od;
          do
          :: oldest == END -> break
          :: else -> newer = oldest; oldest = next[newer]; execute(newer)
          od
        fi
#endif
      od
    :: else
    fi;
    unit++
  od;
  finished++
}

init {
  byte i;
  atomic { run worker(0, 2); run worker(2, 3); run worker(3, 4) }
  (finished == WORKERS);
  assert(word == IDLE);
  i = 0;
  do
  :: i == UNITS -> break
  :: else -> assert(ran[i] == 1); i++
  od
}
