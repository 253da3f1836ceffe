/** The options for Node with which a unit starts a command of the program. */
export function unitFlags(unit: string, command: string): string[] {
  const line = new RegExp(`^ExecStart=\\S+ (.*) \\S+/main\\.js ${command}$`, 'm').exec(unit)
  if (line?.[1] === undefined) throw new Error(`the unit does not say how ${command} is started`)
  return line[1].split(' ')
}
