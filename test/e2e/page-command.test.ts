import { describe, expect, it, onTestFinished } from 'vitest'
import { PageBrowser } from '../helpers/page-browser.ts'
import { Program, runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const SERVICE = { SVC_SERVER_ADDR: '127.0.0.1:1', SVC_AUTHTOKEN: 'no-authtoken-of-anybody' }

async function startAgent(env: Record<string, string> = {}) {
  const folder = temporaryFolder()
  const program = new Program({ args: ['run', '--json'], cwd: folder, env: { ...SERVICE, ...env } })
  onTestFinished(async () => void (await program.end()))
  const { agent_api: api } = await program.ready<{ agent_api: string }>()
  const run = (...args: string[]) => runProgram({ args, cwd: folder, env: SERVICE })
  return { api, program, run }
}

describe('device-agent page', () => {
  it('prints an address, a code that opens the page once, and both as a QR code', async () => {
    const { api, program, run } = await startAgent()
    const { code, stdout } = await run('page')
    expect(code).toBe(0)
    const [, url = '', secret = ''] = /^ {2}(http:\S+)#code=([\w-]+)$/m.exec(stdout) ?? []
    expect(url).toBe(`${api}/page/`)
    expect(stdout).toContain(`code     ${secret}, valid once, until `)
    expect(stdout).toMatch(/[█▀▄]{10}/)
    expect(stdout).toContain('This address works only on this device.')
    const { host, port } = new URL(url)
    expect(stdout).toContain(`ssh -L ${port}:${host} <device>`)
    expect(stdout).not.toContain('\x1b')
    const browser = new PageBrowser(Number(new URL(url).port))
    expect((await browser.signIn({ code: secret })).status).toBe(201)
    expect((await browser.signIn({ code: secret })).status).toBe(401)
    const doctor = await browser.call('GET', '/page/api/doctor')
    const checks = doctor.json.findings.map(({ check }: { check: string }) => check)
    expect(checks).toEqual(
      expect.arrayContaining(['settings', 'data folder', 'tcp 127.0.0.1:1', 'link']),
    )
    expect(doctor.json.failures).toBeGreaterThan(0)
    const { json } = await browser.call('GET', '/page/api/log?limit=1000')
    const texts = json.lines.map(({ line }: { line: { msg: string } }) => line.msg)
    expect(texts).toContain('page session opened')
    expect(program.stderr).not.toContain(secret)
  })

  it('names the address in the network where there is one, and leads no tunnel there', async () => {
    const { api, run } = await startAgent({ AGENT_PAGE_LISTEN: '127.0.0.1:0' })
    const { stdout } = await run('page', '--json')
    const { urls, address, code } = JSON.parse(stdout)
    expect(urls).toEqual([
      expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+\/page\/$/),
      `${api}/page/`,
    ])
    expect(address).toBe(`${urls[0]}#code=${code}`)
    const refused = await run('tunnels', 'add', 'cam.site.test', new URL(urls[0]).host)
    expect(refused.stderr).toContain('forwards-to-not-allowed')
  })

  it('is no reason to stop where the address is not there', async () => {
    const { program, run } = await startAgent({ AGENT_PAGE_LISTEN: '192.0.2.1:7041' })
    expect((await run('status', '--json')).stdout).toContain('"verdict"')
    expect(program.stderr).toContain('"msg":"device page not available yet"')
    expect((await program.end()).code).toBe(0)
  })
})
