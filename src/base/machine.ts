import process from 'node:process'

/** The parts of a machine that decide which native libraries run on it. */
export interface Machine {
  /** As `process.versions.node` has it. */
  readonly node: string
  /** As `process.arch` has it. */
  readonly arch: string
  /** Version of a 32-bit ARM processor that Node.js was built for, such as `7`. */
  readonly arm?: string | undefined
  readonly isMusl?: boolean
}

/** Libraries with a native part: SQLite for all programs, the SDK for the agent. */
export type NativeLibrary = 'SQLite' | 'the SDK'

/**
 * Returns why there is no build of a library for a machine, with a fix. Undefined if there is one, or npm can
 * compile one.
 */
export function missingBuild(
  library: NativeLibrary,
  { node, arch, arm, isMusl = false }: Machine,
): string | undefined {
  if (arch === 'x64' || arch === 'arm64') return undefined
  const name = arch === 'arm' ? `32-bit ARM (ARMv${arm ?? '?'})` : arch
  const there = library === 'SQLite' ? `${name} with Node.js ${node}` : name
  const isArm7 = arch === 'arm' && Number(arm) >= 7
  const isOnNode20 = node.startsWith('20.')
  if (isArm7 && !isMusl && (library === 'the SDK' || isOnNode20)) return undefined
  const orNode20 =
    isArm7 && !isMusl ? ', or Node.js 20 with a C++ compiler, make and Python on this one' : ''
  return `device-agent does not run on ${there}, because there is no build of ${library} for it: install a 64-bit system (arm64 or x64)${orNode20}.`
}

export function thisMachine(): Machine {
  const { arch, versions, config } = process
  const { arm_version } = config.variables as { readonly arm_version?: string }
  const machine = { node: versions.node, arch, arm: arm_version }
  return arch === 'arm' ? { ...machine, isMusl: isMusl() } : machine
}

function isMusl(): boolean {
  const { header } = process.report.getReport() as { header: { glibcVersionRuntime?: string } }
  return header.glibcVersionRuntime === undefined
}
