/** Time of the processor, in microseconds: on a shared machine the wall clock tells little. */
export function cpuUs(): number {
  const { user, system } = process.cpuUsage()
  return user + system
}
