import { expect, it } from 'vitest'
import { findingText, grouped, shortener, summary } from '../../../src/cli/doctor/doctor.ts'
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

it('says a long cause once, also with other times in it', () => {
  const causeAt = (second: number) =>
    `the certificate of gateway.example.com:4443 has expired; the device clock says 2030-01-31 08:30:0${second} UTC, the clock of the gateway 2029-01-31 08:30:0${second} UTC`
  const shorten = shortener()
  const all = [
    bad('tls gateway.example.com:4443', `${causeAt(1)}; certificate chain: a`, 'Set the clock.'),
    bad('link', `waiting: ${causeAt(2)}`, 'Set the clock.'),
    bad('tunnel a', `waiting: ${causeAt(3)}`, 'Set another clock.'),
    bad('tunnel b', 'waiting: no link', 'Set the clock.'),
    good('disk', 'fine'),
  ]
  expect(all.map(shorten)).toEqual([
    all[0],
    { ...bad('link', 'waiting: as above', ''), remedy: null },
    all[2],
    bad('tunnel b', 'waiting: no link', 'As above.'),
    all[4],
  ])
})

it('gives a passed check with a remedy another mark, and counts it', () => {
  const plain = (_colour: unknown, text: string) => text
  const note = { ...good('status', 'the link is slow'), remedy: 'Check the link.' }
  expect(findingText(note, plain)).toBe('! status: the link is slow\n  → Check the link.\n')
  expect(findingText(good('disk', 'fine'), plain)).toBe('✓ disk: fine\n')
  expect(summary([good('disk', 'fine')])).toBe('All checks passed.')
  expect(summary([note])).toBe('No check failed. 1 note has a fix.')
  expect(summary([note, note])).toBe('No check failed. 2 notes have a fix.')
  const failed = bad('disk', '0 MiB free', 'Free disk space.')
  expect(summary([failed])).toBe('1 check failed. Start with the first.')
  expect(summary([note, failed, failed])).toBe(
    '2 checks failed. Start with the first. 1 note has a fix.',
  )
})
