import { expect, it } from 'vitest'
import { grouped } from '../../../src/cli/doctor/doctor.ts'
import { bad, good } from '../../../src/cli/doctor/finding.ts'

it('joins tunnels with the same cause, and nothing else', () => {
  const offline = (name: string) => bad(`tunnel ${name}`, 'waiting: no link', 'Check the link.')
  const other = bad('tunnel e', 'refused: no such domain', 'Reserve the domain.')
  const notes = [good('status', 'a note'), good('status', 'another note')]
  const upstreams = [
    bad('upstream localhost:1', 'down', 'Start.'),
    bad('upstream localhost:2', 'down', 'Start.'),
  ]
  const all = [...notes, ...['a', 'b', 'c', 'd'].map(offline), other, ...upstreams]
  expect(grouped(all)).toEqual([
    ...notes,
    bad('tunnel a, b, c and 1 more', 'waiting: no link', 'Check the link.'),
    other,
    ...upstreams,
  ])
})
