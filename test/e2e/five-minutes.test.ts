import { execFile } from 'node:child_process'
import { readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterEach, expect, it } from 'vitest'
import { ROOT } from '../helpers/document-part.ts'
import { Program } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const README = readFileSync(join(ROOT, 'README.md'), 'utf8')
const shell = promisify(execFile)

/** The lines of each block of commands in the README's five minutes. */
function pastedBlocks(): string[][] {
  const [, part = ''] = /^## Try it in five minutes\n(.*?)^## /ms.exec(README) ?? []
  const blocks = [...part.matchAll(/^ *```sh\n(.*?)^ *```$/gms)].map(([, block = '']) => block)
  return blocks.map((block) =>
    block
      .trim()
      .split('\n')
      .map((line) => line.trim()),
  )
}

/** The output of `up` until it is ready. */
async function welcomeOf(program: Program): Promise<string> {
  let text = ''
  for await (const part of program.child.stdout ?? []) {
    text += part
    if (text.includes('Tunnels are stored')) return text
  }
  throw new Error(`ended before it was ready: ${program.stderr}`)
}

const running: Program[] = []
afterEach(() => Promise.all(running.splice(0).map((program) => program.end())))

/** `npm start` in `cwd`, on free ports; gives a shell there in which the README's ports are these. */
async function startIn(cwd: string) {
  const program = new Program({ args: ['up'], cwd })
  running.push(program)
  const welcome = await welcomeOf(program)
  const ports = [
    ['7040', /agent API {4}http:\/\/127\.0\.0\.1:(\d+)/],
    ['7041', /sample {7}http:\/\/127\.0\.0\.1:(\d+)/],
    ['8080', /public {7}http:\/\/127\.0\.0\.1:(\d+)/],
    ['8443', /public .*https:\/\/127\.0\.0\.1:(\d+)/],
  ] as const
  const paste = async (line: string) => {
    const here = ports.reduce((text, [port, place]) => {
      const [, found = port] = place.exec(welcome) ?? []
      return text.replaceAll(`:${port}`, `:${found}`)
    }, line)
    const { stdout } = await shell('bash', ['-c', here], { cwd, timeout: 60_000 })
    return stdout
  }
  return { program, paste }
}

it('serves TCP at a port that it chooses, and a page at a name that it chooses', async () => {
  const cwd = temporaryFolder()
  symlinkSync(join(ROOT, 'dist'), join(cwd, 'dist'))
  const { paste } = await startIn(cwd)
  const added = await paste('node dist/main.js tunnels add --protocol tcp :7041')
  const [, port = ''] = /^tcp:\/\/127\.0\.0\.1:(71\d\d): /.exec(added) ?? []
  expect(await paste(`curl -sS http://127.0.0.1:${port}/`)).toMatch(/^Hello from the device\./)
  const named = await paste('node dist/main.js tunnels add :7041')
  const [, host = ''] = /^https:\/\/([a-z2-9-]+\.site\.localhost):/.exec(named) ?? []
  expect(await paste(`curl -sS -H 'host: ${host}' http://127.0.0.1:8080/`)).toContain(host)
})

it('works as the README says it, line by line', async () => {
  const [
    [start] = [],
    [add = ''] = [],
    visits = [],
    [status = '', remove = ''] = [],
    [post = ''] = [],
  ] = pastedBlocks()
  expect(start).toBe('npm start')
  expect(visits).toHaveLength(2)

  const cwd = temporaryFolder()
  symlinkSync(join(ROOT, 'dist'), join(cwd, 'dist'))
  const first = await startIn(cwd)
  expect(await first.paste(add)).toContain('hello.site.localhost')
  for (const visit of visits) {
    expect(await first.paste(visit)).toMatch(/^Hello from the device\./)
  }
  await first.program.end()

  const second = await startIn(cwd)
  for (const visit of visits) {
    expect(await second.paste(visit)).toMatch(/^Hello from the device\./)
  }
  expect(await second.paste(status)).toContain('hello.site.localhost')
  expect(await second.paste(remove)).toContain('hello.site.localhost')
  for (const visit of visits) {
    expect(await second.paste(visit)).toContain('ERR_NGROK_3200')
  }
  expect(await second.paste(post)).toMatch(
    /^{"url":"https:\/\/hello\.site\.localhost:\d+","protocol":"http"/,
  )
})
