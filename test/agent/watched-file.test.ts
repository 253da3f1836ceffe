import { chmodSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { type FileReading, WatchedFile } from '../../src/agent/watched-file.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

function setUp(names = ['file']) {
  const folder = temporaryFolder()
  const paths = names.map((name) => join(folder, name))
  const clock = new ManualClock()
  const file = new WatchedFile({ paths, maxBytes: 100, everyMs: 1_000, clock })
  const readings: FileReading[] = []
  onTestFinished(() => file.stop())
  const watch = () => {
    const first = file.read()
    file.start((reading) => {
      readings.push(reading)
    })
    return first
  }
  return { folder, path: paths[0] ?? '', paths, clock, file, readings, watch }
}

it('reads the first file that is there', () => {
  const { paths, file } = setUp(['a', 'b', 'c'])
  expect(file.read()).toEqual({ path: undefined, text: undefined })
  writeFileSync(paths[2] ?? '', 'third')
  writeFileSync(paths[1] ?? '', 'second')
  expect(file.read()).toEqual({ path: paths[1], text: 'second' })
})

it('tells each change once: written, replaced, removed, made again', async () => {
  const { folder, path, clock, readings, watch } = setUp()
  writeFileSync(path, 'one')
  expect(watch().text).toBe('one')
  await clock.advance(3_000)
  expect(readings).toEqual([])
  writeFileSync(path, 'two!')
  await clock.advance(3_000)
  writeFileSync(join(folder, 'new'), 'three')
  renameSync(join(folder, 'new'), path)
  await clock.advance(3_000)
  rmSync(path)
  await clock.advance(3_000)
  writeFileSync(path, 'four')
  await clock.advance(3_000)
  expect(readings.map(({ text }) => text)).toEqual(['two!', 'three', undefined, 'four'])
})

it('follows a link to another file', async () => {
  const { folder, path, clock, readings, watch } = setUp()
  writeFileSync(join(folder, 'v1'), 'one')
  writeFileSync(join(folder, 'v2'), 'two')
  symlinkSync(join(folder, 'v1'), path)
  watch()
  symlinkSync(join(folder, 'v2'), join(folder, 'link'))
  renameSync(join(folder, 'link'), path)
  await clock.advance(1_000)
  expect(readings).toEqual([{ path, text: 'two' }])
})

it('says why a file cannot be read', () => {
  const { path, file } = setUp()
  writeFileSync(path, 'x'.repeat(101))
  expect(file.read()).toEqual({ path, text: undefined, problem: 'it is larger than 100 bytes' })
  rmSync(path)
  mkdirSync(path)
  chmodSync(path, 0o700)
  expect(file.read()).toEqual({ path, text: undefined, problem: 'it is a directory' })
})

it('lives with a path that cannot even be looked at', async () => {
  const { folder, path, clock, readings, watch } = setUp()
  symlinkSync(path, path)
  expect(watch()).toEqual({ path, text: undefined, problem: 'ELOOP' })
  rmSync(path)
  writeFileSync(path, 'one')
  await clock.advance(1_000)
  rmSync(path)
  symlinkSync(path, path)
  await clock.advance(1_000)
  rmSync(path)
  await clock.advance(1_000)
  expect(readings.map(({ text, problem }) => problem ?? text)).toEqual(['one', 'ELOOP', undefined])
  const below = new WatchedFile({
    paths: [join(folder, 'plain', 'token')],
    maxBytes: 100,
    everyMs: 1_000,
    clock,
  })
  writeFileSync(join(folder, 'plain'), '')
  expect(below.read()).toEqual({ path: undefined, text: undefined })
})

it('looks no more once it is stopped', async () => {
  const { path, clock, file, readings, watch } = setUp()
  watch()
  file.stop()
  writeFileSync(path, 'late')
  await clock.advance(10_000)
  expect(readings).toEqual([])
  expect(clock.sleeping).toBe(0)
})
