import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { AuthtokenSource, authtokenLack, withTokenPlace } from '../../src/agent/authtoken-source.ts'
import type { ShownProblem } from '../../src/agent/problem.ts'
import { Secret } from '../../src/base/secret.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

function setUp(value?: string) {
  const folder = temporaryFolder()
  const files = [join(folder, 'credential'), join(folder, 'file')]
  const clock = new ManualClock()
  const captured = captureLog()
  const source = new AuthtokenSource({
    files,
    value: value === undefined ? undefined : new Secret(value),
    everyMs: 1_000,
    clock,
    log: captured.log,
  })
  onTestFinished(() => source.stop())
  let changes = 0
  return {
    credential: files[0] ?? '',
    file: files[1] ?? '',
    clock,
    source,
    captured,
    start: () =>
      source.start(() => {
        changes += 1
      }),
    changes: () => changes,
    token: () => (source.current instanceof Secret ? source.current.reveal() : undefined),
  }
}

it('prefers the credential to the file and the file to the environment', () => {
  const inEnvironment = setUp('from-environment')
  inEnvironment.start()
  expect(inEnvironment.token()).toBe('from-environment')

  const inFile = setUp('from-environment')
  writeFileSync(inFile.file, 'from-file\n')
  inFile.start()
  expect(inFile.token()).toBe('from-file')

  const inCredential = setUp('from-environment')
  writeFileSync(inCredential.file, 'from-file')
  writeFileSync(inCredential.credential, ' from-credential \n')
  inCredential.start()
  expect(inCredential.token()).toBe('from-credential')
})

it('takes a token up when its file comes, changes and goes', async () => {
  const { file, clock, start, token, changes } = setUp()
  start()
  expect(token()).toBeUndefined()
  writeFileSync(file, 'first')
  await clock.advance(1_000)
  expect([token(), changes()]).toEqual(['first', 1])
  writeFileSync(file, 'second')
  await clock.advance(1_000)
  expect([token(), changes()]).toEqual(['second', 2])
  rmSync(file)
  await clock.advance(1_000)
  expect([token(), changes()]).toEqual([undefined, 3])
})

it('keeps the same secret when a file was only touched', async () => {
  const { file, clock, source, start, changes } = setUp()
  writeFileSync(file, 'same')
  start()
  const before = source.current
  rmSync(file)
  writeFileSync(file, 'same\n')
  await clock.advance(1_000)
  expect(source.current).toBe(before)
  expect(changes()).toBe(0)
})

it.each(['', '   \n', 'two words', 'zero\u0000byte', 'x'.repeat(5_000)])(
  'does not take %j for a token',
  (text) => {
    const { file, start, token } = setUp('from-environment')
    writeFileSync(file, text)
    start()
    expect(token()).toBe('from-environment')
  },
)

it('says what is missing and where to put it, as it changes', async () => {
  const { file, credential, clock, source, start, changes } = setUp()
  start()
  const where = `Write an authtoken to ${credential}, `
  expect(source.current).toMatchObject({
    reason: 'auth',
    detail: 'the authtoken file is missing',
    remedy: expect.stringContaining(where),
  })
  writeFileSync(file, '')
  await clock.advance(1_000)
  expect(source.current).toMatchObject({
    detail: 'cannot use the authtoken file: it contains no authtoken',
    remedy: expect.stringContaining(`Write an authtoken to ${file}, `),
  })
  expect(changes()).toBe(1)
})

it('promises no file that it does not watch', () => {
  const { log } = captureLog()
  const clock = new ManualClock()
  const source = new AuthtokenSource({ files: [], value: undefined, everyMs: 1_000, clock, log })
  expect(source.current).toMatchObject({
    remedy: expect.stringMatching(/and restart the agent\. All tunnels are offline until then\.$/),
  })
})

it.each(['', 'two words'])('goes on with the token it has while its file says %j', async (text) => {
  const { file, clock, start, token, changes } = setUp()
  writeFileSync(file, 'works')
  start()
  writeFileSync(file, text)
  await clock.advance(1_000)
  expect([token(), changes()]).toEqual(['works', 0])
  writeFileSync(file, 'new')
  await clock.advance(1_000)
  expect([token(), changes()]).toEqual(['new', 1])
})

it('never logs a token', async () => {
  const { file, clock, start, captured } = setUp('canary-in-environment')
  start()
  writeFileSync(file, 'canary-in-file')
  await clock.advance(1_000)
  expect(captured.lines).toHaveLength(2)
  expect(captured.text()).not.toContain('canary')
})

it('says that the earlier token is still in use when its file is emptied, until it has one again', async () => {
  const { file, clock, source, start, token, changes } = setUp()
  writeFileSync(file, 'good')
  start()
  expect(source.problem).toBeUndefined()
  writeFileSync(file, '')
  await clock.advance(1_000)
  expect([token(), changes()]).toEqual(['good', 0])
  expect(source.problem).toBe(
    `cannot use the authtoken file, the previous authtoken is still in use: it contains no authtoken. Write an authtoken to ${file}`,
  )
  writeFileSync(file, 'good')
  await clock.advance(1_000)
  expect([source.problem, changes()]).toEqual([undefined, 0])
})

it.each([
  ['/run/credentials/device-agent.service/svc-authtoken', '/etc/credstore/svc-authtoken'],
  ['/etc/credstore/svc-authtoken', '/etc/credstore/svc-authtoken'],
])('names the lasting file of the installed service and its restart: %s', (path, file) => {
  const restart = 'Then run sudo systemctl restart device-agent.'
  const { remedy: refused } = withTokenPlace<ShownProblem>({ serviceCode: 'ERR_NGROK_107' }, path)
  expect(refused).toContain(` Or write a valid authtoken to ${file}. ${restart} All tunnels are `)
  const missing = authtokenLack(path, undefined).remedy
  expect(missing).toContain(`Write an authtoken to ${file}, readable only by root. ${restart} For `)
  expect(`${refused} ${missing}`).not.toMatch(/No restart is needed|\/run\//)
})

it.each(['/run/secrets/svc-authtoken', '/srv/authtoken'])('watches other files: %s', (path) => {
  const { remedy: refused } = withTokenPlace<ShownProblem>({ serviceCode: 'ERR_NGROK_107' }, path)
  expect(refused).toContain(`Or write a valid authtoken to ${path}. No restart is needed.`)
  expect(authtokenLack(path, undefined).remedy).toContain(
    `Write an authtoken to ${path}, readable by the agent. No restart is needed.`,
  )
})
