/**
 * Stands in the bundle for `debug` and `depd`, by which Express tells its developers what it does and which of
 * its functions are old. Nobody reads that of an installed program, and both look at the environment and at the
 * stack during each start.
 */
function silent() {}
silent.enabled = false
silent.function = (named) => named
silent.property = silent

module.exports = () => silent
