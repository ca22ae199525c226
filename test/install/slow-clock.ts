/**
 * Returns programs, name → text, by which each sleep takes so many seconds of /proc/uptime, which scripts read
 * by sed. The file `slept` gets a line for each sleep.
 */
export function slowClock(slept: string, seconds: number): Record<'sleep' | 'sed', string> {
  const uptime = `echo $((100 + ${seconds} * $(cat ${slept} 2> /dev/null | wc -l))).42 9.1`
  return {
    sleep: `echo >> ${slept}`,
    sed: `case $* in */proc/uptime) ${uptime} | /usr/bin/sed "$1" ;; *) exec /usr/bin/sed "$@" ;; esac`
  }
}
