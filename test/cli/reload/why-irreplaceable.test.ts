import { describe, expect, it } from 'vitest'
import { ownPlace, whyIrreplaceable } from '../../../src/cli/reload/process-reload.ts'

describe('a process whose place nobody can take', () => {
  it.each([
    ['is the first of a container', 1, 0, 'node', true],
    ['is the one that tini was given', 7, 1, 'tini', true],
    ['is the one that docker run --init was given', 7, 1, 'docker-init', true],
    ['is a child of that one', 8, 7, 'tini', false],
    ['is started by systemd', 700, 1, 'systemd', false],
    ['has outlived its shell, on who knows what', 700, 1, undefined, false],
  ])('%s', (_, pid, ppid, firstName, isOne) => {
    const why = whyIrreplaceable({ pid, ppid, firstName })
    expect(why?.endsWith('Restart the container instead') ?? false).toBe(isOne)
  })

  it('knows its own place', () => {
    const { pid, ppid, firstName } = ownPlace()
    expect([pid, ppid]).toEqual([process.pid, process.ppid])
    expect(firstName).toMatch(/^\S/)
  })
})
