import { describe, expect, it } from 'vitest'
import { type Machine, missingBuild, thisMachine } from '../../src/base/machine.ts'

const arm = (node: string, version: string, isMusl = false): Machine => ({
  ...{ node, arch: 'arm', arm: version, isMusl },
})

describe('missingBuild', () => {
  it.each([
    ['SQLite', { node: '24.1.0', arch: 'x64' }],
    ['the SDK', { node: '20.19.0', arch: 'arm64' }],
    ['SQLite', arm('20.19.0', '7')],
    ['the SDK', arm('20.19.0', '7')],
    ['the SDK', arm('24.1.0', '7')],
    ['SQLite', thisMachine()],
    ['the SDK', thisMachine()],
  ] as const)('finds %s on %j', (library, machine) => {
    expect(missingBuild(library, machine)).toBeUndefined()
  })

  it('names Node.js 20 where another one has no SQLite', () => {
    expect(missingBuild('SQLite', arm('24.1.0', '7'))).toBe(
      'device-agent does not run on 32-bit ARM (ARMv7) with Node.js 24.1.0, because there is no build of SQLite for it: install a 64-bit system (arm64 or x64), or Node.js 20 with a C++ compiler, make and Python on this one.',
    )
  })

  it.each([
    ['the SDK', arm('20.19.0', '6'), '32-bit ARM (ARMv6)'],
    ['SQLite', arm('20.19.0', '6'), '32-bit ARM (ARMv6) with Node.js 20.19.0'],
    ['the SDK', arm('20.19.0', '7', true), '32-bit ARM (ARMv7)'],
    ['the SDK', { node: '24.1.0', arch: 'riscv64' }, 'riscv64'],
    ['SQLite', { node: '20.19.0', arch: 'ia32' }, 'ia32 with Node.js 20.19.0'],
  ] as const)('has only a 64-bit system to offer for %s on %j', (library, machine, name) => {
    expect(missingBuild(library, machine)).toBe(
      `device-agent does not run on ${name}, because there is no build of ${library} for it: install a 64-bit system (arm64 or x64).`,
    )
  })
})
