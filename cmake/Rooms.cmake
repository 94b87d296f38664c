# A room is a folder under src/ with its sources. Adding a file to a room needs no change here.
function(cfabric_room_sources out)
  set(all)
  foreach(room ${ARGN})
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*.c)
    list(APPEND all ${files})
  endforeach()
  set(${out} ${all} PARENT_SCOPE)
endfunction()
